"""Traces of Mooncake's layout: JSON Lines; ``timestamp`` in ms, lengths in tokens.

    {"timestamp": 3000, "input_length": 1100, "output_length": 20, "hash_ids": [0, 1, 2]}

Equal ``hash_ids`` mean equal text up to and including that block of 512 tokens; the last block of
a prompt is usually partial. Source: kvcache-ai/Mooncake ``FAST25-release/traces``. The other names
of the same keys (``input_tokens``, ``output_tokens``, ``session_id``) are those of
ai-dynamo/aiperf ``docs/benchmark-modes/trace-replay.md``.
"""

from __future__ import annotations

import msgspec

from pointsman.core.errors import missing_field, wrong_value
from pointsman.workload.builder import Row, WorkloadBuilder
from pointsman.workload.hash_ids import HASH_IDS_WANTED, HashedLines
from pointsman.workload.reading import (
    ID_WANTED,
    TIME_WANTED,
    TOKENS_WANTED,
    BlockId,
    NumberedLines,
    Reading,
    TimeMs,
    Tokens,
)

BLOCK_SIZE_TOKENS = 512
UNIT = "ms"

_WANTED = {
    "timestamp": TIME_WANTED,
    "input_length": TOKENS_WANTED,
    "input_tokens": TOKENS_WANTED,
    "output_length": TOKENS_WANTED,
    "output_tokens": TOKENS_WANTED,
    **HASH_IDS_WANTED,
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
    hashed = HashedLines((_Line, _WANTED), reading.options, UNIT, BLOCK_SIZE_TOKENS)

    def parse(text: bytes, where: str) -> Row:
        line = hashed.decode(text, where)
        lengths = (
            _either(line, ("input_length", "input_tokens"), where),
            _either(line, ("output_length", "output_tokens"), where),
        )
        session = None if line.session_id is None else str(line.session_id)
        return hashed.row(line, lengths, where, session=session)

    return hashed.read(lines, reading, parse)


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
