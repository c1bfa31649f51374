"""The first requests of a workload."""

from __future__ import annotations

from dataclasses import replace

from pointsman.workload.workload import Workload, workload_of_columns


def beginning(workload: Workload, count: int) -> Workload:
    """So many requests, the first to arrive; their numbers, blocks and sessions stay the same."""
    if count >= len(workload):
        return workload
    rows, names = slice(count), workload.names
    starts = workload.chain_start[: count + 1]
    return workload_of_columns(
        workload.arrival_ms[rows],
        service_ms=workload.service_ms[rows],
        prompt_tokens=workload.prompt_tokens[rows],
        output_tokens=workload.output_tokens[rows],
        session=workload.session[rows],
        adapter=workload.adapter[rows],
        chain_start=starts,
        chain_blocks=workload.chain_blocks[: int(starts[-1])],
        prefix_tokens=workload.prefix_tokens[rows],
        block_size_tokens=workload.block_size_tokens,
        priority=workload.priority[rows],
        names=replace(names, requests=names.requests and names.requests[:count]),
        source=workload.source,
    )
