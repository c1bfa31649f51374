"""How much load a fleet holds under a policy: the most at which enough requests keep all
objectives.

Load is a multiple of the trace's own rate: arrivals divided by it, all else as it was. Loads are
tried on a grid, the powers of ``tolerance_ratio``, so that what is found does not depend on where
the search begins, as long as goodput falls with load.

Where a trace has sessions, the time between the turns shrinks with the same multiple: give it a
rate near what the fleet holds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pointsman.core.errors import InputError, wrong_value
from pointsman.metrics.goodput import Objectives, goodput
from pointsman.metrics.latency import spread_of
from pointsman.metrics.rates import window_ms
from pointsman.metrics.serving import cached_token_fraction
from pointsman.policies.policy import Policy
from pointsman.sim.batching import BatchingFleet, simulate_fleet
from pointsman.sim.conditions import NOTHING_SPECIAL, Conditions
from pointsman.sim.outcome import answers_of
from pointsman.workload.arrivals import with_rate_scaled
from pointsman.workload.workload import Workload

ATTAINMENT_FRACTION = 0.95
TOLERANCE_RATIO = 1.012

# A load so many times below the first guess is taken for none, and so many times above it for any.
NONE_RATIO = 1e3
ANY_RATIO = 1e6
FIRST_STRIDE = 4  # steps of the grid; twice as many with each further one

_MS_PER_HOUR = 3_600_000.0


@dataclass(frozen=True, slots=True)
class Cell:
    """One workload on one fleet, and what surrounds it."""

    workload: Workload
    fleet: BatchingFleet
    conditions: Conditions = NOTHING_SPECIAL
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Target:
    """What counts as held: so many of all offered requests keep all objectives.

    Loads are told apart to ``tolerance_ratio``. Raises InputError for values outside their range.
    """

    objectives: Objectives
    attainment_fraction: float = ATTAINMENT_FRACTION
    tolerance_ratio: float = TOLERANCE_RATIO

    def __post_init__(self) -> None:
        if not 0.0 < self.attainment_fraction <= 1.0:
            wanted = "a fraction > 0 and <= 1"
            raise wrong_value("held load", "attainment", self.attainment_fraction, wanted)
        if not 1.0 < self.tolerance_ratio <= 2.0:
            wanted = "a ratio > 1 and <= 2"
            raise wrong_value("held load", "tolerance", self.tolerance_ratio, wanted)


@dataclass(frozen=True, slots=True)
class AtLoad:
    """What a fleet did at one load; latencies are of finished requests, None where there are none.

    ``simulated_ms``: from the first arrival to the last finish.
    """

    load_ratio: float
    goodput_fraction: float
    p99_ttft_ms: float | None
    worst_ttft_ms: float | None
    p99_tpot_ms: float | None
    cached_token_fraction: float | None
    simulated_ms: float


@dataclass(frozen=True, slots=True)
class HeldLoad:
    """The largest load found at which the target is met; 0 and no figures where there is none.

    ``tried``: every load of the search, the least first.
    """

    load_ratio: float
    at: AtLoad | None
    simulations: int
    simulated_hours: float
    tried: tuple[AtLoad, ...] = ()


def held_load(cell: Cell, policy: Policy, target: Target, guess: float = 1.0) -> HeldLoad:
    """Bisect in the logarithm of the load, beginning at ``guess``.

    A fleet that misses the target at every load down to a thousandth of ``guess`` holds nothing.
    Raises InputError where it meets the target at every load up to a million times ``guess``, for
    then the trace is too short or too light to tell, and where the workload is empty.
    """
    if not 0.0 < guess < math.inf:
        raise wrong_value("held load", "guess", guess, "a number > 0")
    if not len(cell.workload):
        raise InputError("held load: the workload has no requests; expected at least one")
    search = _Search(cell, policy, target)
    bracket = search.bracket(round(math.log(guess) / math.log(target.tolerance_ratio)))
    if bracket is None:
        return search.found(None)
    low, high = bracket
    while high - low > 1:
        middle = (low + high) // 2
        if search.meets(middle):
            low = middle
        else:
            high = middle
    return search.found(low)


def at_load(cell: Cell, policy: Policy, objectives: Objectives, load_ratio: float) -> AtLoad:
    """One simulation at one load."""
    workload = with_rate_scaled(cell.workload, load_ratio)
    answers = answers_of(simulate_fleet(workload, policy, cell.fleet, cell.conditions, cell.seed))
    ttft_ms = spread_of(answers.ttft_ms)
    return AtLoad(
        load_ratio=load_ratio,
        goodput_fraction=goodput(answers, objectives).fraction or 0.0,
        p99_ttft_ms=ttft_ms.p99,
        worst_ttft_ms=ttft_ms.worst,
        p99_tpot_ms=spread_of(answers.tpot_ms).p99,
        cached_token_fraction=cached_token_fraction(answers),
        simulated_ms=window_ms(answers.arrival_ms, answers.finish_ms),
    )


class _Search:
    """The loads tried so far, by their place on the grid: load = tolerance ** place."""

    def __init__(self, cell: Cell, policy: Policy, target: Target) -> None:
        self._cell = cell
        self._policy = policy
        self._target = target
        self._tried: dict[int, AtLoad] = {}

    def meets(self, place: int) -> bool:
        """Whether the target is met there."""
        if place not in self._tried:
            load_ratio = self._target.tolerance_ratio**place
            objectives = self._target.objectives
            self._tried[place] = at_load(self._cell, self._policy, objectives, load_ratio)
        return self._tried[place].goodput_fraction >= self._target.attainment_fraction

    def bracket(self, start: int) -> tuple[int, int] | None:
        """A place where the target is met and one above it where it is missed; None where it is
        missed at the start and everywhere near below."""
        return self._rise(start) if self.meets(start) else self._fall(start)

    def _places(self, ratio: float) -> int:
        return math.ceil(math.log(ratio) / math.log(self._target.tolerance_ratio))

    def _fall(self, start: int) -> tuple[int, int] | None:
        missed, stride, least = start, FIRST_STRIDE, start - self._places(NONE_RATIO)
        while missed > least:
            place = max(least, missed - stride)
            if self.meets(place):
                return place, missed
            missed = place
            stride *= 2
        return None

    def _rise(self, start: int) -> tuple[int, int]:
        met, stride, most = start, FIRST_STRIDE, start + self._places(ANY_RATIO)
        while met < most:
            place = min(most, met + stride)
            if not self.meets(place):
                return met, place
            met = place
            stride *= 2
        raise InputError(
            f"{self._cell.workload.source.name}: under {self._policy.name} the fleet holds"
            f" {self._target.tolerance_ratio**met:g} times its rate and more; expected a longer"
            " trace, a smaller fleet or tighter objectives"
        )

    def found(self, place: int | None) -> HeldLoad:
        """What the search came to, and what it took."""
        at = None if place is None else self._tried[place]
        return HeldLoad(
            load_ratio=0.0 if at is None else at.load_ratio,
            at=at,
            simulations=len(self._tried),
            simulated_hours=sum(each.simulated_ms for each in self._tried.values()) / _MS_PER_HOUR,
            tried=tuple(self._tried[place] for place in sorted(self._tried)),
        )
