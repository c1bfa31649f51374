"""A workload written in Pointsman's own format (``jsonl.py`` describes it)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from pointsman.core.errors import InputError, wrong_value
from pointsman.workload.compressed import compressed_file
from pointsman.workload.jsonl import VERSION, Header
from pointsman.workload.workload import Workload

_ROWS_AT_ONCE = 1 << 16


def write_workload(workload: Workload, path: Path) -> None:
    """Write a workload in our format, whole or not at all; ``.gz`` and ``.zst`` are compressed.

    Reading it gives equal columns and names, provided the workload came from a reader, the
    builder or the generator; any other is numbered anew in order of first appearance. Equal
    content gives equal bytes. Raises InputError for a workload without requests and for different
    things of one name, and MachineError where the file cannot be written.
    """
    if len(workload) == 0:
        raise InputError(f"{path}: the workload has no requests; expected at least one")
    for kind in ("sessions", "adapters", "blocks"):
        _check_distinct(kind, getattr(workload.names, kind) or (), path)
    encode = msgspec.json.Encoder().encode
    with compressed_file(path) as file:
        by_blocks = _needs_blocks(workload)
        if by_blocks:
            header = Header(VERSION, workload.block_size_tokens)
            file.write(encode(header) + b"\n")
        for lines in _pages(workload, by_blocks):
            file.write(b"\n".join(map(encode, lines)) + b"\n")


def _check_distinct(kind: str, names: tuple[str, ...], path: Path) -> None:
    if len(set(names)) != len(names):
        name = next(name for place, name in enumerate(names) if name in names[:place])
        raise wrong_value(str(path), f"a name of {kind}", name, "a name that only one has")


def _needs_blocks(workload: Workload) -> bool:
    longest = workload.chain_lengths.max(initial=0)
    return bool(workload.block_size_tokens != 1 or longest > 1)


def _pages(workload: Workload, by_blocks: bool) -> Iterator[list[dict[str, Any]]]:
    line_of = _blocks_line if by_blocks else _keyed_line
    for first in range(0, len(workload), _ROWS_AT_ONCE):
        last = min(first + _ROWS_AT_ONCE, len(workload))
        yield [
            line_of(line, chain_names, prefix_tokens, workload.block_size_tokens)
            for line, chain_names, prefix_tokens in _lines(workload, first, last)
        ]


def _lines(
    workload: Workload, first: int, last: int
) -> Iterator[tuple[dict[str, Any], list[Any], int]]:
    """Rows ``first`` to ``last``: all keys but those of the prefix, the chain, its tokens."""
    names = workload.names
    starts = workload.chain_start[first : last + 1].tolist()
    blocks = workload.chain_blocks[starts[0] : starts[-1]].tolist()
    if names.blocks is not None:
        blocks = [names.blocks[block] for block in blocks]
    rows = slice(first, last)
    columns = zip(
        workload.arrival_ms[rows].tolist(),
        workload.service_ms[rows].tolist(),
        workload.prompt_tokens[rows].tolist(),
        workload.output_tokens[rows].tolist(),
        workload.session[rows].tolist(),
        workload.adapter[rows].tolist(),
        workload.prefix_tokens[rows].tolist(),
        workload.priority[rows].tolist(),
        strict=True,
    )
    for row, (arrival, service, prompt, output, session, adapter, prefix, priority) in enumerate(
        columns
    ):
        line: dict[str, Any] = {}
        if names.requests is not None:
            line["request_id"] = names.requests[first + row]
        line["arrival_ms"] = arrival
        if not math.isnan(service):
            line["service_ms"] = service
        if prompt >= 0:
            line["prompt_tokens"] = prompt
        if output >= 0:
            line["output_tokens"] = output
        if session >= 0:
            line["session_id"] = session if names.sessions is None else names.sessions[session]
        if adapter >= 0:
            line["adapter_id"] = adapter if names.adapters is None else names.adapters[adapter]
        if priority:
            line["priority"] = priority
        yield line, blocks[starts[row] - starts[0] : starts[row + 1] - starts[0]], prefix


def _keyed_line(
    line: dict[str, Any], chain_names: list[Any], prefix_tokens: int, _block_size: int
) -> dict[str, Any]:
    if chain_names:
        line["prefix_key"] = chain_names[0]
        if prefix_tokens != line.get("prompt_tokens", 1):
            line["prefix_tokens"] = prefix_tokens
    return line


def _blocks_line(
    line: dict[str, Any], chain_names: list[Any], prefix_tokens: int, block_size: int
) -> dict[str, Any]:
    if chain_names:
        line["block_ids"] = chain_names
        prompt = line.get("prompt_tokens")
        implied = len(chain_names) * block_size
        whole = prompt is None or implied <= prompt
        if not whole or prefix_tokens != implied:
            line["prefix_tokens"] = prefix_tokens
    return line
