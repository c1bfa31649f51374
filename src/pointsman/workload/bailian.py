"""Qwen-Bailian's traces: JSON Lines; ``timestamp`` in s, lengths in tokens, blocks of 16.

    {"chat_id": 160, "parent_chat_id": 159, "timestamp": 62.5, "input_length": 40,
     "output_length": 80, "type": "text", "turn": 2, "hash_ids": [1089, 1090, 1091]}

A row is one turn and holds its whole context. ``parent_chat_id`` is the turn before it, -1 for a
first one; a chain of parents ends at the session's root. A trace begins and ends in the midst of
sessions: where a parent is not in the file, its id stands for the root. ``type`` and ``turn`` are
not used. Source: alibaba-edu/qwen-bailian-usagetraces-anon ``README.md``.
"""

from __future__ import annotations

import msgspec

from pointsman.core.errors import InputError, wrong_value
from pointsman.workload.builder import Row, WorkloadBuilder
from pointsman.workload.hash_ids import HASH_IDS_WANTED, HashedLines
from pointsman.workload.reading import (
    TOKENS_WANTED,
    BlockId,
    NumberedLines,
    Reading,
    TimeMs,
    Tokens,
)

BLOCK_SIZE_TOKENS = 16
UNIT = "s"
ROOT = -1
SIGN = "chat_id"  # a key of no other layout

_WANTED = {
    "chat_id": "an integer",
    "parent_chat_id": "an integer, -1 for a first turn",
    "timestamp": "a time in s >= 0",
    "input_length": TOKENS_WANTED,
    "output_length": TOKENS_WANTED,
    "type": "a string",
    "turn": "an integer",
    **HASH_IDS_WANTED,
}


class _Line(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    chat_id: int
    timestamp: TimeMs
    input_length: Tokens
    output_length: Tokens
    parent_chat_id: int = ROOT
    type: str | None = None
    turn: int | None = None
    hash_ids: list[BlockId] | None = None


def read(lines: NumberedLines, reading: Reading) -> WorkloadBuilder:
    """The rows of a Bailian trace; request ids are chat ids, and sessions those of their roots."""
    hashed = HashedLines((_Line, _WANTED), reading.options, UNIT, BLOCK_SIZE_TOKENS)
    parser = _Parser(hashed)
    turns: list[tuple[int, Row]] = []
    reading.collect(lines, parser.parse, lambda turn, _: turns.append(turn))
    roots = _roots(parser.parents, reading.name)
    builder = WorkloadBuilder(hashed.block_size_tokens)
    for chat, row in turns:
        builder.add(msgspec.structs.replace(row, session=str(roots[chat])), reading.name)
    hashed.check_span(builder, reading)
    return builder


class _Parser:
    def __init__(self, hashed: HashedLines) -> None:
        self._hashed = hashed
        self.parents: dict[int, int] = {}

    def parse(self, text: bytes, where: str) -> tuple[int, Row]:
        line = self._hashed.decode(text, where)
        lengths = line.input_length, line.output_length
        row = self._hashed.row(line, lengths, where, request_id=str(line.chat_id))
        if line.chat_id in self.parents or line.chat_id == ROOT:
            raise wrong_value(
                where, "chat_id", line.chat_id, "an id not used before, other than -1"
            )
        self.parents[line.chat_id] = line.parent_chat_id
        return line.chat_id, row


def _roots(parents: dict[int, int], name: str) -> dict[int, int]:
    """The root of each chat; every chat is passed once."""
    roots: dict[int, int] = {}
    for chat in parents:
        passed: dict[int, None] = {}
        at = chat
        while at not in roots:
            if at in passed:
                raise InputError(
                    f"{name}: chat_id {at} is among its own parents; expected a first turn"
                    " with parent_chat_id -1"
                )
            passed[at] = None
            if parents.get(at, ROOT) == ROOT:
                roots[at] = at
                break
            at = parents[at]
        roots.update(dict.fromkeys(passed, roots[at]))
    return roots
