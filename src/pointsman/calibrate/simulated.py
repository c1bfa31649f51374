"""A recorded run as the simulator runs it: the same requests, with given costs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pointsman.calibrate.lockstep import lockstep_loop, run_in_lockstep
from pointsman.calibrate.recording import Recording, Times
from pointsman.calibrate.setup import EngineSetup
from pointsman.core.compiled import Kernel
from pointsman.costs.iteration import IterationCosts
from pointsman.policies.catalogue import POLICIES
from pointsman.sim.batching import BatchingFleet, Engine, fleet_state, simulate_fleet
from pointsman.sim.batching_state import Fleet
from pointsman.sim.conditions import Conditions
from pointsman.sim.kernels import kernels_for
from pointsman.sim.knowledge import Signals
from pointsman.workload.workload import Floats, Workload, workload_of_columns

FRONT, LOCKSTEP_FRONT = "least_requests", "vllm"


@dataclass(frozen=True, slots=True)
class Twin:
    """The requests of a recording and the engine that they are replayed on, all but its costs.

    Several engine cores stand behind vLLM's own front where they step together (``lockstep``), and
    behind ``least_requests`` where each runs for itself.
    """

    recording: Recording
    workload: Workload
    async_scheduling: bool

    def run(self, costs: IterationCosts) -> Times:
        """What would have happened with these costs."""
        fleet = BatchingFleet.of(self._engine(costs), self.recording.setup.engine_cores)
        if self.recording.setup.lockstep:
            state = fleet_state(self.workload, fleet, Signals())
            run_in_lockstep(state)
            return self._times(state, self.workload.arrival_ms)
        conditions = Conditions(closed_loop=self.recording.closed_loop)
        run = simulate_fleet(self.workload, POLICIES[FRONT], fleet, conditions)
        return self._times(run.state, run.arrival_ms)

    def _times(self, state: Fleet, arrival_ms: Floats) -> Times:
        return Times(
            arrival_ms,
            np.ascontiguousarray(state.progress["scheduled_ms"]),
            np.ascontiguousarray(state.flights["first_token_ms"]),
            np.ascontiguousarray(state.progress["finish_ms"]),
            self.workload.output_tokens,
        )

    def _engine(self, costs: IterationCosts) -> Engine:
        setup = self.recording.setup
        return Engine(
            costs=costs,
            kv_blocks=setup.kv_blocks or _blocks_of_all(self.recording),
            block_size=setup.block_size,
            max_num_seqs=min(setup.max_num_seqs, len(self.workload)),
            max_num_batched_tokens=setup.max_num_batched_tokens,
            reserve_full=setup.reserve_full,
            async_scheduling=self.async_scheduling,
            shares_late=setup.shares_late,
        )


def front_of(setup: EngineSetup) -> str | None:
    """What the engine cores stand behind; None of one core."""
    if setup.engine_cores == 1:
        return None
    return LOCKSTEP_FRONT if setup.lockstep else FRONT


def kernels_of(setup: EngineSetup) -> tuple[Kernel, ...]:
    """What simulating the engine compiles."""
    return (lockstep_loop(),) if setup.lockstep else kernels_for([POLICIES[FRONT]])


def twin_of(recording: Recording, shared_blocks: float, async_scheduling: bool) -> Twin:
    """The recording to be replayed, so many leading blocks of its prompts being shared where their
    blocks are not known."""
    known = recording.workload
    workload = _workload(recording, shared_blocks) if known is None else known
    return Twin(recording, workload, async_scheduling)


def _workload(recording: Recording, shared_blocks: float) -> Workload:
    """The requests, each with its share of one leading chain.

    Of a fraction, that part of the requests has one block more than the others, evenly spread:
    with 0.5 every second one.
    """
    prompt = recording.prompt_tokens
    size = recording.setup.block_size
    shares = np.floor(np.arange(len(recording) + 1) * shared_blocks + 1e-9)
    lengths = np.minimum(np.diff(shares).astype(np.int64), prompt // size)
    starts = np.concatenate(([0], np.cumsum(lengths)))
    return workload_of_columns(
        recording.times.arrival_ms,
        prompt_tokens=prompt,
        output_tokens=recording.output_tokens,
        chain_start=starts,
        chain_blocks=np.arange(starts[-1]) - np.repeat(starts[:-1], lengths),
        block_size_tokens=size,
    )


def _blocks_of_all(recording: Recording) -> int:
    """So many that the cache is never full, not even with all requests at once."""
    tokens = recording.prompt_tokens.astype(np.int64) + recording.output_tokens
    return int(np.sum(tokens // recording.setup.block_size + 1))
