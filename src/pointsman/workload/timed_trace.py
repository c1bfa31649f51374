"""vLLM's timed traces: JSON Lines; ``timestamp`` in s, lengths in tokens, blocks of 16.

    {"timestamp": 12.4, "input_length": 42, "output_length": 8, "hash_ids": [981, 4412, 7]}

The keys are Mooncake's, with another unit and another block size, so a file of this layout has to
be named as one. Those of vLLM's ``--timed-trace-sec-multiplier`` and
``--timed-trace-chunk-hash-size`` are the options ``time_unit`` and ``block_size_tokens`` here.
Source: vllm-project/vllm ``vllm/benchmarks/datasets/datasets.py``, whose defaults (1, so seconds,
and 16) these are; keys renamed by its ``--timed-trace-label-...`` are to be named back.
"""

from __future__ import annotations

import msgspec

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

_WANTED = {
    "timestamp": "a time in s >= 0",
    "input_length": TOKENS_WANTED,
    "output_length": TOKENS_WANTED,
    **HASH_IDS_WANTED,
}


class _Line(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    timestamp: TimeMs
    input_length: Tokens
    output_length: Tokens
    hash_ids: list[BlockId] | None = None


def read(lines: NumberedLines, reading: Reading) -> WorkloadBuilder:
    """The rows of a timed trace.

    A prompt is as long as its ``input_length``, whatever its ids. A span that is implausible in a
    unit which nobody confirmed is refused, naming it.
    """
    hashed = HashedLines((_Line, _WANTED), reading.options, UNIT, BLOCK_SIZE_TOKENS)

    def parse(text: bytes, where: str) -> Row:
        line = hashed.decode(text, where)
        return hashed.row(line, (line.input_length, line.output_length), where)

    return hashed.read(lines, reading, parse)
