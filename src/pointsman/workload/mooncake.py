"""Traces of Mooncake's layout: JSON Lines; ``timestamp`` in ms, lengths in tokens.

    {"timestamp": 3000, "input_length": 1100, "output_length": 20, "hash_ids": [0, 1, 2]}

Equal ``hash_ids`` mean equal text up to and including that block of 512 tokens; the last block of
a prompt is usually partial. Source: kvcache-ai/Mooncake ``FAST25-release/traces``. The other names
of the same keys (``input_tokens``, ``output_tokens``, ``session_id``) are those of
ai-dynamo/aiperf ``docs/benchmark-modes/trace-replay.md``.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from pointsman.core.errors import InputError, missing_field, wrong_value
from pointsman.workload.builder import Row, WorkloadBuilder
from pointsman.workload.reading import (
    BLOCK_ID_WANTED,
    ID_WANTED,
    TIME_WANTED,
    TOKENS_WANTED,
    BlockId,
    JsonLine,
    NumberedLines,
    Reading,
    TimeMs,
    Tokens,
    time_ms,
    whole_blocks,
)

BLOCK_SIZE_TOKENS = 512

# Beyond one request a minute or 1,000 a second, another unit is likelier than such traffic.
_SLOWEST_GAP_MS = 60_000.0
_FASTEST_GAP_MS = 1.0
_JUDGED_FROM_ROWS = 100

_WANTED = {
    "timestamp": TIME_WANTED,
    "input_length": TOKENS_WANTED,
    "input_tokens": TOKENS_WANTED,
    "output_length": TOKENS_WANTED,
    "output_tokens": TOKENS_WANTED,
    "hash_ids": "a list of integers >= 0",
    "hash_ids[]": BLOCK_ID_WANTED,
    "session_id": ID_WANTED,
}
# What tells this layout from ours, in which none of these is a key.
SIGNS = frozenset(("timestamp", "input_length", "input_tokens", "output_length", "hash_ids"))


class _Line(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    timestamp: TimeMs
    input_length: Tokens | None = None
    output_length: Tokens | None = None
    hash_ids: list[BlockId] | None = None
    input_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    session_id: int | str | None = None


def read(lines: NumberedLines, reading: Reading) -> WorkloadBuilder:
    """The rows of a Mooncake trace.

    ``time_unit`` s reads the timestamps as seconds. A span that is implausible in a unit which
    the file does not state is refused, naming it.
    """
    options = reading.options
    builder = WorkloadBuilder(options.block_size_tokens or BLOCK_SIZE_TOKENS)
    ms_per_unit = 1000.0 if options.time_unit == "s" else 1.0
    parser = _Parser(builder.block_size_tokens, ms_per_unit)
    reading.collect(lines, parser.parse, builder.add)
    _check_span(builder, reading)
    return builder


class _Parser:
    def __init__(self, block_size_tokens: int, ms_per_unit: float) -> None:
        self._block_size = block_size_tokens
        self._ms_per_unit = ms_per_unit
        self._line = JsonLine(_Line, _WANTED)

    def parse(self, text: bytes, where: str) -> Row:
        line = self._line.decode(text, where)
        prompt_tokens = _either(line, ("input_length", "input_tokens"), where)
        return Row(
            time_ms(line.timestamp, self._ms_per_unit, "timestamp", where),
            None,
            None,
            prompt_tokens,
            _either(line, ("output_length", "output_tokens"), where),
            None if line.session_id is None else str(line.session_id),
            None,
            self._chain(line.hash_ids or (), prompt_tokens, where),
        )

    def _chain(self, ids: Sequence[int], prompt_tokens: int, where: str) -> Sequence[int]:
        whole = whole_blocks(ids, prompt_tokens, self._block_size)
        full, rest = divmod(prompt_tokens, self._block_size)
        # A list with or without the partial block; none at all says nothing about prefixes.
        if ids and not full <= len(ids) <= full + (rest > 0):
            raise InputError(
                f"{where}: hash_ids has {len(ids)} ids; expected {full + (rest > 0)},"
                f" one for each {self._block_size} of {prompt_tokens} tokens"
                " (--block-size says how many tokens a block has)"
            )
        return whole


def _either(line: _Line, names: tuple[str, str], where: str) -> int:
    """The value under one of two names of the same key."""
    usual, other = names
    value: int | None = getattr(line, usual)
    if value is None:
        value = getattr(line, other)
    elif getattr(line, other) is not None:
        raise wrong_value(where, other, getattr(line, other), f"none beside {usual}")
    if value is None:
        raise missing_field(where, usual, TOKENS_WANTED)
    return value


def _check_span(builder: WorkloadBuilder, reading: Reading) -> None:
    unit = reading.options.time_unit
    if builder.rows < _JUDGED_FROM_ROWS:
        return
    span_ms = builder.span_ms
    gap_ms = span_ms / (builder.rows - 1)
    if unit == "s" and gap_ms > _SLOWEST_GAP_MS:
        raise InputError(
            f"{reading.name}: timestamp spans {span_ms / 86_400_000:.1f} days when read as s,"
            f" one request in {gap_ms / 1000:.0f} s; expected ms, the unit of this layout"
        )
    if unit is None and 0 < gap_ms < _FASTEST_GAP_MS:
        raise InputError(
            f"{reading.name}: timestamp spans {span_ms:g} ms when read as ms, the unit of this"
            f" layout: {1000 / gap_ms:.0f} requests a second;"
            " expected --time-unit s or ms to say what it is"
        )
