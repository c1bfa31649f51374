"""Pointsman's own format: JSON Lines, one request a line, times in ms, lengths in tokens.

    {"pointsman": 1, "block_size_tokens": 16}                                 needed for block_ids
    {"arrival_ms": 0.0, "prompt_tokens": 40, "output_tokens": 5, "block_ids": [0, 1, 2]}

The keys are those of the lesson on serving replica routing, with the lesson on distributed
inference's ``generate_tokens`` for ``output_tokens``. ``prefix_key`` is one shared prefix,
``block_ids`` a chain of blocks; ``prefix_tokens`` is what either covers. A key that is null is a
key that is absent.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Hashable, Sequence
from itertools import chain
from typing import Annotated

import msgspec

from pointsman.core.errors import InputError, missing_field, wrong_value
from pointsman.workload.builder import Row, WorkloadBuilder
from pointsman.workload.reading import (
    ID_WANTED,
    TIME_WANTED,
    TOKENS_WANTED,
    JsonLine,
    NumberedLines,
    Reading,
    TimeMs,
    Tokens,
    WholeFileError,
    whole_blocks,
)

VERSION = 1
HEADER_KEY = "pointsman"
EXAMPLE_HEADER = '{"pointsman": 1, "block_size_tokens": 16}'
# How an integer is shown; longer ones than Python converts are no integers to the JSON reader.
Priority = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,4299}")

_WANTED = {
    "request_id": ID_WANTED,
    "arrival_ms": TIME_WANTED,
    "service_ms": TIME_WANTED,
    "prompt_tokens": TOKENS_WANTED,
    "output_tokens": TOKENS_WANTED,
    "generate_tokens": TOKENS_WANTED,
    "prefix_key": ID_WANTED,
    "block_ids": "a list of strings or integers",
    "block_ids[]": ID_WANTED,
    "prefix_tokens": TOKENS_WANTED,
    "session_id": ID_WANTED,
    "adapter_id": ID_WANTED,
    "priority": "an integer in -2147483648..2147483647, the lowest of which goes first",
}


class Header(msgspec.Struct, forbid_unknown_fields=True):
    """The optional first line."""

    pointsman: int
    block_size_tokens: Tokens | None = None


class _Line(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    arrival_ms: TimeMs
    request_id: int | str | None = None
    service_ms: TimeMs | None = None
    prompt_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    generate_tokens: Tokens | None = None
    prefix_key: int | str | None = None
    block_ids: list[int | str] | None = None
    prefix_tokens: Tokens | None = None
    session_id: int | str | None = None
    adapter_id: int | str | None = None
    priority: Priority = 0


def read(lines: NumberedLines, reading: Reading) -> WorkloadBuilder:
    """The rows of a file in our format; ids that read the same (7 and "7") are the same."""
    first = next(lines)
    block_size = reading.options.block_size_tokens
    if is_header(first[1]):
        block_size = _stated_block_size(first, reading.name, block_size)
    else:
        lines = chain((first,), lines)
    builder = WorkloadBuilder(block_size or 1)
    reading.collect(lines, _Parser(block_size).parse, builder.add)
    return builder


def is_header(line: bytes) -> bool:
    """Whether a line is the optional first line of our format."""
    try:
        return HEADER_KEY in msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _stated_block_size(first: tuple[int, bytes], name: str, asked: int | None) -> int | None:
    number, line = first
    where = f"{name} line {number}"
    wanted = {HEADER_KEY: f"{VERSION}", "block_size_tokens": "an integer >= 1"}
    header = JsonLine(Header, wanted).decode(line, where)
    if header.pointsman != VERSION:
        raise wrong_value(where, HEADER_KEY, header.pointsman, f"{VERSION}, the format's version")
    stated: int | None = header.block_size_tokens
    if stated == 0:
        raise wrong_value(where, "block_size_tokens", 0, "an integer >= 1")
    if None not in (asked, stated) and asked != stated:
        raise wrong_value(where, "block_size_tokens", stated, f"{asked}, as was asked for")
    return stated or asked


class _Parser:
    """Lines into rows. A file names prefixes in one way: by key or by blocks."""

    def __init__(self, block_size_tokens: int | None) -> None:
        self._block_size = block_size_tokens
        self._line = JsonLine(_Line, _WANTED)
        self._keyed: bool | None = None

    def parse(self, text: bytes, where: str) -> Row:
        line = self._line.decode(text, where)
        output_tokens = line.output_tokens
        if line.generate_tokens is not None:
            output_tokens = _generate_tokens(line, where)
        if line.service_ms is None and (line.prompt_tokens is None or output_tokens is None):
            raise _unpriced(line, where)
        blocks, prefix_tokens = self._chain(line, where)
        return Row(
            line.arrival_ms,
            _text(line.request_id),
            line.service_ms,
            line.prompt_tokens,
            output_tokens,
            _text(line.session_id),
            _text(line.adapter_id),
            blocks,
            prefix_tokens,
            line.priority,
        )

    def _chain(self, line: _Line, where: str) -> tuple[Sequence[Hashable], int | None]:
        prefix_tokens = line.prefix_tokens
        if line.prefix_key is None and not line.block_ids:
            if prefix_tokens:
                raise wrong_value(
                    where, "prefix_tokens", prefix_tokens, "a prefix_key or block_ids with it"
                )
            return [], None
        if prefix_tokens is not None and line.prompt_tokens is not None:
            _check_covered(prefix_tokens, line.prompt_tokens, where)
        self._check_kind(line, where)
        if line.block_ids:
            return self._blocks(line, where), prefix_tokens
        if prefix_tokens is None:
            prefix_tokens = 1 if line.prompt_tokens is None else line.prompt_tokens
        return [str(line.prefix_key)], prefix_tokens

    def _check_kind(self, line: _Line, where: str) -> None:
        keyed = line.prefix_key is not None
        if keyed and line.block_ids:
            raise wrong_value(where, "prefix_key", line.prefix_key, "none beside block_ids")
        if self._keyed is None:
            self._keyed = keyed
        elif self._keyed != keyed:
            here, above = ("prefix_key", "block_ids")[:: 1 if keyed else -1]
            raise InputError(
                f"{where}: {here} in a file that has {above} above; expected one of the two"
            )

    def _blocks(self, line: _Line, where: str) -> Sequence[Hashable]:
        if self._block_size is None:
            raise WholeFileError(
                f"{where}: block_ids without a block size; expected the first line"
                f" {EXAMPLE_HEADER}, or --block-size (block_size_tokens in Python)"
            )
        ids = _same_where_read_the_same(line.block_ids or [])
        # Where the line says what its blocks cover, the last one may be partial.
        if line.prefix_tokens is not None or line.prompt_tokens is None:
            return ids
        most = -(-line.prompt_tokens // self._block_size)
        if len(ids) > most:
            wanted = (
                f"at most {most}, one for each {self._block_size} of {line.prompt_tokens} tokens"
            )
            raise InputError(f"{where}: block_ids has {len(ids)} ids; expected {wanted}")
        return whole_blocks(ids, line.prompt_tokens, self._block_size)


def _same_where_read_the_same(ids: list[int | str]) -> Sequence[Hashable]:
    """The ids with texts such as "7" as integers, so that 7 and "7" are the same."""
    try:
        return array("q", ids)  # type: ignore[type-var]
    except (TypeError, OverflowError):
        return [
            int(name) if isinstance(name, str) and _INTEGER.fullmatch(name) else name
            for name in ids
        ]


def _text(name: int | str | None) -> str | None:
    return None if name is None else str(name)


def _generate_tokens(line: _Line, where: str) -> int | None:
    if line.output_tokens is not None:
        raise wrong_value(
            where, "generate_tokens", line.generate_tokens, "none beside output_tokens"
        )
    return line.generate_tokens


def _unpriced(line: _Line, where: str) -> InputError:
    if line.prompt_tokens is None:
        return missing_field(where, "prompt_tokens", f"{TOKENS_WANTED}, or service_ms")
    return missing_field(where, "output_tokens", f"{TOKENS_WANTED}, or service_ms")


def _check_covered(prefix_tokens: int, prompt_tokens: int, where: str) -> None:
    if prefix_tokens > prompt_tokens:
        wanted = f"at most prompt_tokens, {prompt_tokens}"
        raise wrong_value(where, "prefix_tokens", prefix_tokens, wanted)
