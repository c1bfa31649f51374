"""Fleets small enough to be worked out by hand.

An iteration takes 10 ms, 1 a prefill token and 1 a decoding request; blocks hold four tokens.
"""

from __future__ import annotations

from dataclasses import replace

from pointsman import workload_of_columns
from pointsman.costs.iteration import IterationCosts
from pointsman.sim.batching import BatchingFleet, Engine, Split
from pointsman.workload.workload import Workload

ENGINE = Engine(IterationCosts(10.0, 1.0, 1.0, 0.0), kv_blocks=100, block_size=4)

# 2 bytes a token at 1 byte a ms, 5 ms before that.
LINK = Split(prefill=1, kv_bytes_per_token=2.0, bytes_per_ms=1.0, base_ms=5.0)


def asked(*rows: tuple) -> Workload:
    """Rows of (arrival, prompt, output) and, where there are any, the ids of the blocks."""
    chains = [row[3] if len(row) > 3 else () for row in rows]
    starts = [0]
    for chain in chains:
        starts.append(starts[-1] + len(chain))
    return workload_of_columns(
        [float(row[0]) for row in rows],
        prompt_tokens=[row[1] for row in rows],
        output_tokens=[row[2] for row in rows],
        chain_start=starts,
        chain_blocks=[block for chain in chains for block in chain],
        block_size_tokens=4,
    )


def alike(replicas: int, **changes: object) -> BatchingFleet:
    return BatchingFleet.of(replace(ENGINE, **changes), replicas)


def split(prefills: int, decodes: int, link: Split = LINK, **changes: object) -> BatchingFleet:
    engines = (replace(ENGINE, **changes),) * (prefills + decodes)
    return BatchingFleet(engines, replace(link, prefill=prefills))
