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
from pointsman.workload.reading import (
    BLOCK_ID_WANTED,
    TOKENS_WANTED,
    BlockId,
    JsonLine,
    NumberedLines,
    Reading,
    TimeMs,
    Tokens,
    listed_blocks,
    time_ms,
)
from pointsman.workload.units import check_span, ms_per_unit

BLOCK_SIZE_TOKENS = 16
UNIT = "s"

_WANTED = {
    "timestamp": "a time in s >= 0",
    "input_length": TOKENS_WANTED,
    "output_length": TOKENS_WANTED,
    "hash_ids": "a list of integers >= 0",
    "hash_ids[]": BLOCK_ID_WANTED,
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
    options = reading.options
    builder = WorkloadBuilder(options.block_size_tokens or BLOCK_SIZE_TOKENS)
    parser = _Parser(builder.block_size_tokens, ms_per_unit(options, UNIT))
    reading.collect(lines, parser.parse, builder.add)
    check_span(builder, reading, "timestamp", UNIT)
    return builder


class _Parser:
    def __init__(self, block_size_tokens: int, ms_per_unit: float) -> None:
        self._block_size = block_size_tokens
        self._ms_per_unit = ms_per_unit
        self._line = JsonLine(_Line, _WANTED)

    def parse(self, text: bytes, where: str) -> Row:
        line = self._line.decode(text, where)
        return Row(
            time_ms(line.timestamp, self._ms_per_unit, "timestamp", where),
            prompt_tokens=line.input_length,
            output_tokens=line.output_length,
            chain=listed_blocks(line.hash_ids or (), line.input_length, self._block_size, where),
        )
