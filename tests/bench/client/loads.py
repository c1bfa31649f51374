"""Small workloads, and a load sent to a stand-in."""

from __future__ import annotations

import numpy as np

from pointsman.bench.client.arrivals import OpenLoop
from pointsman.bench.client.load import Load
from pointsman.bench.client.measure import Measured, send_load
from pointsman.bench.client.progress import Watch
from pointsman.bench.client.target import Target
from pointsman.bench.client.tokenizer import Lengths
from pointsman.workload.workload import Workload, workload_of_columns
from tests.bench.client.stand_in import Script, StandInEngine, run

NOT_ASKED = Lengths()  # each of our words is one token


def requests(count: int, gap_ms: float = 0.0, **columns) -> Workload:
    """So many, evenly spaced, of 10 prompt and 4 output tokens unless told otherwise."""
    columns = {"prompt_tokens": [10] * count, "output_tokens": [4] * count, **columns}
    return workload_of_columns(np.arange(count) * gap_ms, **columns)


async def sent(engine: StandInEngine, load: Load, watch: Watch | None = None, **target) -> Measured:
    """A load sent to a stand-in that counts words as tokens."""
    target = {"model": "m", "dialect": "vllm", **target}
    return await send_load(Target(engine.url, **target), load, watch, NOT_ASKED)


def measured(
    script: Script, workload: Workload, how=None, **load
) -> tuple[Measured, StandInEngine]:
    """What comes of a workload that a stand-in answers by a script."""

    async def main():
        async with StandInEngine(script) as engine:
            return await sent(engine, Load(workload, how or OpenLoop(), **load)), engine

    return run(main())
