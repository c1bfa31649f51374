"""What the layouts with ``hash_ids`` share: a timestamp, two lengths, an id for each block.

Mooncake's, vLLM's timed traces and Qwen-Bailian's differ in unit, block size and further keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pointsman.core.errors import InputError
from pointsman.workload.builder import Row, WorkloadBuilder
from pointsman.workload.reading import (
    BLOCK_ID_WANTED,
    JsonLine,
    NumberedLines,
    Reading,
    ReadOptions,
    time_ms,
    whole_blocks,
)
from pointsman.workload.units import check_span, ms_per_unit

TIMESTAMP = "timestamp"
HASH_IDS_WANTED = {"hash_ids": "a list of integers >= 0", "hash_ids[]": BLOCK_ID_WANTED}


class HashedLines:
    """Lines of one such layout: ``unit`` and ``block_size_tokens`` are those that it states."""

    def __init__(
        self,
        line: tuple[type[Any], Mapping[str, str]],
        options: ReadOptions,
        unit: str,
        block_size_tokens: int,
    ) -> None:
        self.block_size_tokens = options.block_size_tokens or block_size_tokens
        self._unit = unit
        self._ms_per_unit = ms_per_unit(options, unit)
        self.decode = JsonLine(*line).decode

    def row(
        self,
        line: Any,
        lengths: tuple[int, int],
        where: str,
        *,
        request_id: str | None = None,
        session: str | None = None,
    ) -> Row:
        """The row of a decoded line with these tokens of prompt and output."""
        prompt_tokens, output_tokens = lengths
        return Row(
            time_ms(line.timestamp, self._ms_per_unit, TIMESTAMP, where),
            request_id,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            session=session,
            chain=listed_blocks(line.hash_ids or (), prompt_tokens, self.block_size_tokens, where),
        )

    def read(
        self, lines: NumberedLines, reading: Reading, parse: Callable[[bytes, str], Row]
    ) -> WorkloadBuilder:
        """All rows, with their span checked."""
        builder = WorkloadBuilder(self.block_size_tokens)
        reading.collect(lines, parse, builder.add)
        self.check_span(builder, reading)
        return builder

    def check_span(self, builder: WorkloadBuilder, reading: Reading) -> None:
        """Refuse a span that is implausible in a unit which nobody confirmed."""
        check_span(builder, reading, TIMESTAMP, self._unit)


def listed_blocks(
    ids: Sequence[int], prompt_tokens: int, block_size_tokens: int, where: str
) -> Sequence[int]:
    """The whole blocks of a list with an id for each block of the prompt; () says nothing.

    Raises InputError for a list of another length than the prompt's, with or without its last,
    partial block.
    """
    full, rest = divmod(prompt_tokens, block_size_tokens)
    if ids and not full <= len(ids) <= full + (rest > 0):
        raise InputError(
            f"{where}: hash_ids has {len(ids)} ids; expected {full + (rest > 0)},"
            f" one for each {block_size_tokens} of {prompt_tokens} tokens"
            " (--block-size says how many tokens a block has)"
        )
    return whole_blocks(ids, prompt_tokens, block_size_tokens)
