"""The compiled engine against the stepping oracle, and properties of a fleet that batches."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman import POLICIES
from pointsman.policies.policy import REQUEST, ROWS, Policy, policy
from pointsman.sim.batching_loop import DONE, batching_loop
from pointsman.sim.batching_state import ENGINE, FINISHED, NONE, QUESTION, Fleet, idle_fleet
from pointsman.sim.knowledge import Signals
from pointsman.sim.kv_cache import check_invariants
from pointsman.sim.traffic import idle_traffic
from tests import batching_oracle
from tests.batching_cases import CASES
from tests.priority_cases import PRIORITIES

RELATIVE = 1e-9


def fleet_of(
    engine: batching_oracle.Engine, arrivals: list[batching_oracle.Arrival], replicas: int = 1
) -> Fleet:
    size = engine.block_size
    questions = np.zeros(len(arrivals), dtype=QUESTION)
    blocks: list[int] = []
    for i, arrival in enumerate(arrivals):
        questions[i]["arrival_ms"] = arrival.time_ms
        questions[i]["chain_start"] = len(blocks)
        questions[i]["prompt_blocks"] = min(len(arrival.chain), arrival.prompt // size)
        filled = (arrival.prompt + arrival.output) // size
        questions[i]["known_blocks"] = min(len(arrival.chain), filled)
        questions[i]["prompt_tokens"] = arrival.prompt
        questions[i]["output_tokens"] = arrival.output
        questions[i]["session"] = NONE
        questions[i]["priority"] = arrival.priority
        blocks += arrival.chain
    engines = np.zeros(replicas, dtype=ENGINE)
    for name, value in zip(ENGINE.names[:5], engine.costs, strict=True):
        engines[name] = value
    for name in ("max_num_seqs", "max_num_batched_tokens", "block_size", "reserve_full"):
        engines[name] = getattr(engine, name)
    engines["see_late"] = engine.async_scheduling
    capacities = np.full(replicas, engine.capacity_blocks, dtype=np.int32)
    for name in ("max_model_len", "by_priority"):
        engines[name] = getattr(engine, name)
    questions["decode_row"] = NONE
    fleet = idle_fleet(questions, np.array(blocks, dtype=np.int32), engines, capacities, Signals())
    fleet.in_flight.replica_of[:, 0] = fleet.in_flight.replica_of[:, 2] = np.arange(replicas)
    return fleet


@policy(
    rule="In turn; after so many requests nobody, which ends the loop there.",
    source="these tests",
    reasons=("turn",),
    parameters={"requests": 0.0},
    reads=("prefix", "engine"),
)
def takes_turns_until(request, view, parameters):
    if request.sequence >= parameters[0]:
        return -1, 0
    return request.sequence % view.shape[1], 0


def run(fleet: Fleet, name: str = "round_robin") -> Fleet:
    assert go_on(fleet, POLICIES[name]) == DONE
    return fleet


def go_on(fleet: Fleet, rule: Policy) -> int:
    count, n = fleet.engines.shape[0], fleet.questions.shape[0]
    traffic = idle_traffic(n, count)
    for signal in ("queue", "prefix", "engine", "session", "steps"):
        traffic.rules[signal] = 1
    return batching_loop(rule.reads)(
        rule.choose,
        rule.parameter_values,
        fleet,
        traffic,
        np.zeros(ROWS * count),
        np.full((1, 2), NONE, dtype=np.int32),
        np.zeros(n, dtype=np.int8),
        np.zeros(1, dtype=REQUEST),
        len(rule.reasons),
        0,
    )


def rows(fleet: Fleet) -> list[tuple]:
    return [
        (
            "finished" if row["status"] == FINISHED else "rejected",
            absent(row["scheduled_ms"]),
            absent(flight["first_token_ms"]),
            absent(row["finish_ms"]),
            int(row["cached_tokens"]),
            int(row["preemptions"]),
        )
        for row, flight in zip(fleet.progress, fleet.flights, strict=True)
    ]


def absent(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def expected_rows(results: list[batching_oracle.Result]) -> list[tuple]:
    return [
        (
            result.status,
            result.scheduled_ms,
            result.first_token_ms,
            result.finish_ms,
            result.cached_tokens,
            result.preemptions,
        )
        for result in results
    ]


def assert_equal(ours: list[tuple], theirs: list[tuple]) -> None:
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine[0], *mine[4:]) == (other[0], *other[4:])
        for time, wanted in zip(mine[1:4], other[1:4], strict=True):
            assert time == (wanted if wanted is None else pytest.approx(wanted, rel=RELATIVE))


ALL = [*CASES, *PRIORITIES]


@pytest.mark.parametrize(
    ("engine", "arrivals", "expected"), [c[1:] for c in ALL], ids=[case[0] for case in ALL]
)
def test_the_hand_worked_cases(engine, arrivals, expected):
    fleet = run(fleet_of(engine, list(arrivals)))
    assert_equal(rows(fleet), expected_rows(list(expected)))
    check_invariants(fleet)


engines = st.builds(
    batching_oracle.Engine,
    max_num_seqs=st.integers(1, 5),
    max_num_batched_tokens=st.integers(5, 40),
    capacity_blocks=st.integers(3, 24),
    block_size=st.sampled_from((1, 2, 4, 8)),
    reserve_full=st.booleans(),
    async_scheduling=st.booleans(),
    costs=st.tuples(
        st.floats(0.5, 9.0), st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.1), st.floats(0, 0.01)
    ),
    by_priority=st.booleans(),
    max_model_len=st.just(1 << 20) | st.integers(10, 60),
)


@st.composite
def arrival_lists(draw) -> list[batching_oracle.Arrival]:
    arrivals, now_ms = [], 0.0
    for _ in range(draw(st.integers(1, 14))):
        now_ms += draw(st.sampled_from((0.0, 0.5, 3.0, 40.0)) | st.floats(0, 60))
        family = draw(st.integers(0, 2))
        length = draw(st.integers(0, 8))
        arrivals.append(
            batching_oracle.Arrival(
                time_ms=now_ms,
                prompt=draw(st.integers(1, 30)),
                output=draw(st.integers(1, 25)),
                chain=tuple(family * 100 + place for place in range(length)),
                priority=draw(st.integers(-1, 1)),
            )
        )
    return arrivals


@settings(max_examples=600, deadline=None)
@given(engines, arrival_lists())
def test_jumps_give_the_events_and_times_of_stepping(engine, arrivals):
    theirs = batching_oracle.run(engine, arrivals)
    fleet = run(fleet_of(engine, arrivals))
    assert_equal(rows(fleet), expected_rows(theirs))
    check_invariants(fleet)


@settings(max_examples=60, deadline=None)
@given(engines, arrival_lists(), st.sampled_from(sorted(POLICIES)), st.integers(1, 4))
def test_every_request_ends_and_nothing_is_left_behind(engine, arrivals, name, replicas):
    fleet = run(fleet_of(engine, arrivals, replicas), name)
    assert all(status in ("finished", "rejected") for status, *_ in rows(fleet))
    check_invariants(fleet)
    assert (fleet.replicas["free"] == fleet.replicas["capacity"]).all()
    assert (fleet.replicas["running"] == 0).all()
    for account in ("requests", "pending_ms", "pending_tokens", "context_tokens", "decoding"):
        assert (fleet.in_flight.accounts[account] == 0).all()
    assert (fleet.knowledge.expected == 0).all()


@settings(max_examples=150, deadline=None)
@given(engines, arrival_lists(), st.integers(1, 3), st.data())
def test_at_every_arrival_free_used_and_cached_blocks_are_all_there_are(
    engine, arrivals, replicas, data
):
    fleet = fleet_of(engine, arrivals, replicas)
    go_on(fleet, takes_turns_until.bind(requests=data.draw(st.integers(0, len(arrivals)))))
    check_invariants(fleet)
    for r, replica in enumerate(fleet.replicas):
        slots, capacity = fleet.slots[r], replica["capacity"]
        in_use = {slot for row in held_slots(fleet, r) for slot in row}
        assert len(in_use) + replica["free"] == capacity
        assert sum(map(len, held_slots(fleet, r))) == slots["references"].sum()
        assert (fleet.slot_of[r] >= 0).sum() == (slots["block"] != NONE).sum()
        assert replica["running"] <= engine.max_num_seqs


def held_slots(fleet: Fleet, r: int) -> list[list[int]]:
    """What each running request holds; nobody holds one twice."""
    found = []
    for i in fleet.order[r, : fleet.replicas[r]["running"]]:
        row = r * fleet.order.shape[1] + fleet.progress[i]["seat"]
        slots = fleet.held[row, : fleet.progress[i]["held_blocks"]].tolist()
        assert len(set(slots)) == len(slots)
        found.append(slots)
    return found


def test_a_long_answer_is_one_event_not_hundreds():
    engine = batching_oracle.Engine(8, 2048, 100, 16, True, (5.0, 0.05, 0.1, 1e-4, 0.0))
    fleet = run(fleet_of(engine, [batching_oracle.Arrival(0.0, 100, 500, ())]))
    assert fleet.replicas["events"].tolist() == [2]
