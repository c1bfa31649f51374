"""What happened to each request on a fleet that batches, as columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pointsman.policies.policy import Policy
from pointsman.sim.batching_fleet import BatchingFleet
from pointsman.sim.batching_state import (
    ENGINE_MODEL,
    FAILED,
    FINISHED,
    REJECTED,
    Fleet,
    Records,
)
from pointsman.sim.conditions import Conditions
from pointsman.workload.workload import Floats, Ints, Workload


@dataclass(frozen=True, eq=False)
class FleetRun:
    """What happened to each request on a fleet that batches; a row a request.

    Times are NaN for what did not happen. Every request is finished, rejected or failed.
    """

    workload: Workload
    policy: Policy
    fleet: BatchingFleet
    conditions: Conditions
    seed: int
    reason: NDArray[np.int8]
    waits: Floats
    state: Fleet
    engine_model: str = ENGINE_MODEL

    @property
    def progress(self) -> Records:
        """The rows that brought answers: of a split fleet those of the decode."""
        return self.state.progress[-len(self.workload) :]

    @property
    def prefills(self) -> Records:
        """The rows that computed prompts; of a fleet that is not split the same."""
        return self.state.progress[: len(self.workload)]

    @property
    def replicas(self) -> Records:
        """What each replica did."""
        return self.state.replicas

    @cached_property
    def arrival_ms(self) -> Floats:
        """When each request came: of a closed loop not the workload's own time."""
        return np.ascontiguousarray(self.state.questions["arrival_ms"][: len(self.workload)])

    @property
    def replica(self) -> Ints:
        """Where each prompt was computed; -1 for nowhere."""
        return np.ascontiguousarray(self.prefills["replica"])

    @property
    def decode_replica(self) -> Ints:
        """Where each answer was generated; -1 for nowhere."""
        return np.ascontiguousarray(self.progress["replica"])

    @property
    def status(self) -> Ints:
        """How each request ended: FINISHED, REJECTED or FAILED."""
        ended = self.prefills["status"]
        given_up = (ended == REJECTED) | (ended == FAILED)
        return np.where(given_up, ended, self.progress["status"]).astype(np.int32)

    @property
    def finished(self) -> NDArray[np.bool_]:
        """Which requests got their whole answer."""
        return np.asarray(self.status == FINISHED)

    @cached_property
    def first_token_ms(self) -> Floats:
        """When the first token came."""
        return np.ascontiguousarray(self.state.flights["first_token_ms"][-len(self.workload) :])

    @cached_property
    def finish_ms(self) -> Floats:
        """When the last token came."""
        return np.ascontiguousarray(self.progress["finish_ms"])

    @cached_property
    def queue_wait_ms(self) -> Floats:
        """From arrival until the engine first scheduled it."""
        return np.asarray(self.prefills["scheduled_ms"] - self.arrival_ms)

    @property
    def expected_wait_ms(self) -> Floats:
        """What the router expected at the candidate chosen; NaN where the policy reads no queue."""
        return np.ascontiguousarray(self.waits[:, 0])

    @property
    def shortest_wait_ms(self) -> Floats:
        """What it expected at the candidate with the shortest wait."""
        return np.ascontiguousarray(self.waits[:, 1])

    @property
    def saved_ms(self) -> Floats:
        """How much less the prompt was expected to take there than at that one."""
        return np.ascontiguousarray(self.waits[:, 2])

    @property
    def boundary_wait_ms(self) -> Floats:
        """Until the iteration ended that was under way where a request was sent."""
        return np.ascontiguousarray(self.waits[:, 3])

    @cached_property
    def cached_tokens(self) -> Ints:
        """Prompt tokens that were in the replica's cache when it was admitted."""
        return np.ascontiguousarray(self.prefills["cached_tokens"])

    @property
    def recomputed_tokens(self) -> Ints:
        """Prompt tokens that had been in that cache too, and were evicted before it was admitted:
        a cache without bounds would have had them."""
        return np.ascontiguousarray(self.prefills["recomputed_tokens"])

    @property
    def handoff_ms(self) -> Floats:
        """Base time and transfer of each hand-off; NaN where there was none."""
        received = ~np.isnan(self.progress["received_ms"])
        return np.where(received, self.progress["handoff_ms"], np.nan)

    @property
    def handoff_bytes(self) -> Floats:
        """What each hand-off moved."""
        bytes_per_token = 0.0 if self.fleet.split is None else self.fleet.split.kv_bytes_per_token
        return np.asarray(self.progress["moved_tokens"] * bytes_per_token)

    @property
    def seat_wait_ms(self) -> Floats:
        """From a request's coming to its decode replica until that had a seat and blocks for it."""
        base_ms = 0.0 if self.fleet.split is None else self.fleet.split.base_ms
        came_ms = self.prefills["finish_ms"] + base_ms
        return np.asarray(self.progress["scheduled_ms"] - came_ms)

    @property
    def preemptions(self) -> Ints:
        """How often each request was preempted."""
        if self.fleet.split is None:
            return np.ascontiguousarray(self.progress["preemptions"])
        return np.asarray(self.prefills["preemptions"] + self.progress["preemptions"])
