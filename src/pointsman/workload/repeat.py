"""A trace played several times over, for runs that it is too short for."""

from __future__ import annotations

import numpy as np

from pointsman.core.errors import wrong_value
from pointsman.workload.workload import MISSING, Ints, Names, Workload, workload_of_columns


def repeated(workload: Workload, times: int) -> Workload:
    """The same requests ``times`` over, each round a mean gap behind the last arrival before it.

    Every round has prefixes and sessions of its own, so that no round finds what another one left
    in a cache. Names are left out. Raises InputError where ``times`` is no integer >= 1, or where a
    number of blocks or a time becomes larger than a workload can hold.
    """
    if isinstance(times, bool) or not isinstance(times, int) or times < 1:
        raise wrong_value("workload", "times", times, "an integer >= 1")
    count = len(workload)
    if times == 1 or count == 0:
        return workload
    period_ms = workload.span_ms * count / max(1, count - 1)
    round_of = np.repeat(np.arange(times), count)
    blocks = np.repeat(np.arange(times), workload.chain_blocks.size) * workload.block_count
    lengths = np.tile(workload.chain_lengths, times)
    return workload_of_columns(
        np.tile(workload.arrival_ms, times) + round_of * period_ms,
        service_ms=np.tile(workload.service_ms, times),
        prompt_tokens=np.tile(workload.prompt_tokens, times),
        output_tokens=np.tile(workload.output_tokens, times),
        session=_own(workload.session, workload.session_count, times),
        adapter=np.tile(workload.adapter, times),
        chain_start=np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths))),
        chain_blocks=np.tile(workload.chain_blocks, times) + blocks,
        prefix_tokens=np.tile(workload.prefix_tokens, times),
        block_size_tokens=workload.block_size_tokens,
        priority=np.tile(workload.priority, times),
        names=Names(adapters=workload.names.adapters),
        source=workload.source,
    )


def _own(column: Ints, numbers: int, times: int) -> Ints:
    """Other numbers in each round, but for MISSING."""
    shifts = np.repeat(np.arange(times) * numbers, column.size)
    again = np.tile(column, times)
    return np.where(again == MISSING, MISSING, again + shifts).astype(np.int32)
