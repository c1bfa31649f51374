"""The compiled event loop against the stepping fleet, under all conditions at once."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from pointsman import POLICIES
from pointsman.metrics.intertoken import gap_bins
from pointsman.sim.batching import FleetRun
from pointsman.sim.batching_state import (
    CAN_NEVER_FIT,
    DIED_MID_STREAM,
    FAILED,
    FINISHED,
    NO_REPLICA,
    REJECTED,
    TRIES_USED,
)
from pointsman.sim.kv_cache import check_invariants
from pointsman.sim.outcome import gaps_of
from pointsman.sim.timeline import even_samples
from tests.batching_oracle import Arrival, Engine
from tests.fleet_cases import RULES, Case, cases, simulated
from tests.fleet_oracle import NearTieError, World
from tests.fleet_replicas import Link, Setting

VERDICTS = {
    (FINISHED, 0): "finished",
    (REJECTED, CAN_NEVER_FIT): "can never fit",
    (FAILED, NO_REPLICA): "no replica",
    (FAILED, TRIES_USED): "tries used",
    (FAILED, DIED_MID_STREAM): "died mid-stream",
}


def assert_nothing_is_left_behind(run: FleetRun) -> None:
    check_invariants(run.state)
    assert set(run.status.tolist()) <= {FINISHED, REJECTED, FAILED}
    assert (run.replicas["free"] == run.replicas["capacity"]).all()
    for name in ("running", "waiting", "receiving"):
        assert (run.replicas[name] == 0).all()
    for name in ("requests", "pending_ms", "pending_tokens", "context_tokens", "decoding"):
        assert (run.state.in_flight.accounts[name] == 0).all()
    assert (run.state.in_flight.accounts["decoding_tokens"] == 0).all()
    assert (run.state.in_flight.accounts["oldest"] == -1).all()
    assert (run.state.knowledge.expected == 0).all()
    assert run.state.link["active"] == run.state.link["sent"] == 0


def verdicts(run: FleetRun) -> list[str]:
    causes = run.prefills["cause"].tolist()
    return [VERDICTS[verdict] for verdict in zip(run.status.tolist(), causes, strict=True)]


def assert_equal_runs(run: FleetRun, world: World) -> None:
    assert verdicts(run) == [job.status for job in world.jobs]
    assert run.prefills["tries"].tolist() == [job.tries for job in world.jobs]
    preemptions = [sum(row.result.preemptions for row in job.rows) for job in world.jobs]
    assert run.preemptions.tolist() == preemptions
    close(run.arrival_ms, [job.came_ms for job in world.jobs])
    prefills = [job.prefill for job in world.jobs]
    assert run.replica.tolist() == [row.replica if row else -1 for row in prefills]
    cached = [row.result.cached_tokens if row else 0 for row in prefills]
    assert run.cached_tokens.tolist() == cached
    recomputed = [row.recomputed if row else 0 for row in prefills]
    assert run.recomputed_tokens.tolist() == recomputed
    close(run.prefills["scheduled_ms"], [row and row.result.scheduled_ms for row in prefills])
    answers = [job.answers for job in world.jobs]
    assert run.decode_replica.tolist() == [row.replica if row else -1 for row in answers]
    close(run.first_token_ms, [row and row.result.first_token_ms for row in answers])
    close(run.finish_ms, [row and row.result.finish_ms for row in answers])
    if world.link:
        assert run.progress["moved_tokens"].tolist() == [row.moved if row else 0 for row in answers]
        began = [row and row.received_ms and row.begun_ms for row in answers]
        close(run.progress["received_ms"], [row and row.received_ms for row in answers])
        close(run.progress["received_ms"] - run.handoff_ms + world.link.base_ms, began)


def close(ours, theirs) -> None:
    wanted = np.array([math.nan if each is None else each for each in theirs], dtype=float)
    np.testing.assert_allclose(ours, wanted, rtol=1e-9, atol=1e-9)


def assert_equal_gaps(run: FleetRun, gaps_ms: list[float]) -> None:
    """A gap within rounding of a border may be in either bin."""
    histogram = gaps_of(run)
    gaps = np.sort(np.array(gaps_ms, dtype=float))
    bins = np.repeat(np.arange(len(histogram.counts)), histogram.counts)
    assert len(bins) == len(gaps)
    assert (gap_bins(gaps * (1 - 1e-9)) <= bins).all()
    assert (bins <= gap_bins(gaps * (1 + 1e-9))).all()
    assert math.isclose(histogram.total_ms, math.fsum(gaps), rel_tol=1e-9, abs_tol=1e-9)


def assert_equal_samples(run: FleetRun, world: World) -> None:
    step_ms, samples = even_samples(run.state)
    assert step_ms == world.step_ms
    assert samples.shape[1] == len(world.samples)
    for k, instant in enumerate(world.samples):
        for r, (running, waiting, used) in enumerate(instant):
            assert samples[r, k, :2].tolist() == [running, waiting]
            assert used is None or math.isclose(samples[r, k, 2], used, rel_tol=1e-6)


MANY = settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


@MANY
@given(cases())
def test_a_fleet_under_all_conditions_does_what_plain_stepping_does(case):
    run = simulated(case)
    dealt = run.state.questions["router"].tolist()
    try:
        world = World(case.setting, list(case.arrivals), RULES[case.rule][1], dealt).run()
    except NearTieError:
        reject()
    assert_nothing_is_left_behind(run)
    assert_equal_runs(run, world)
    assert_equal_gaps(run, world.gaps_ms)
    assert_equal_samples(run, world)


@MANY
@given(cases(tuple(POLICIES)), st.sampled_from((0.0, 5.0, 300.0)))
def test_every_policy_under_all_conditions_gives_verdicts_and_leaves_nothing_behind(case, delay_ms):
    run = simulated(replace(case, event_delay_ms=delay_ms, has_sessions=True))
    assert_nothing_is_left_behind(run)
    for verdict, finish_ms in zip(verdicts(run), run.finish_ms, strict=True):
        assert math.isnan(finish_ms) == (verdict != "finished")
    finished = run.finished
    assert (run.first_token_ms[finished] >= run.prefills["scheduled_ms"][finished]).all()
    assert (run.queue_wait_ms[finished] >= 0.0).all()
    if run.fleet.split is not None:
        assert (run.seat_wait_ms[finished] >= 0.0).all()


PLAIN_COSTS = (20.0, 0.0, 0.0, 0.0, 0.0)
RUNS_OUT = Case(
    setting=Setting(
        engines=(
            Engine(1, 4, 34, 1, False, PLAIN_COSTS),
            Engine(3, 4, 39, 1, False, PLAIN_COSTS, by_priority=True),
        ),
        link=Link(
            prefills=1,
            base_ms=0.0,
            bytes_per_ms=0.0625,
            bytes_per_token=1.0,
            shares=True,
            moves_all=False,
        ),
        changes=(),
        most_tries=1,
        concurrency=0,
        think_ms=0.0,
        hold=None,
        metrics_age_ms=0.0,
        reads_prefix=False,
    ),
    arrivals=(
        Arrival(0.0, 23, 4, (0, 1, 2)),
        *(Arrival(0.0, 1, 1, ()) for _ in range(3)),
        Arrival(0.0, 6, 4, (0, 1, 2)),
        Arrival(0.0, 8, 10, ()),
        *(Arrival(64.0, 1, 1, ()) for _ in range(2)),
    ),
    rule="round_robin",
    event_delay_ms=0.0,
    has_sessions=False,
)


def test_a_decode_replica_that_goes_by_priority_and_runs_out_of_blocks_does_as_stepping_does():
    """4 is preempted at 556, and 5, which runs from 592 on, takes the eight blocks that 4 freed:
    those of the ids 2, 1, 0 come last, at 712, 732 and 752. At 760 the KV of 0 brings these ids
    again. At 772 no block is free, and 5 goes, which came last. So at 792 4 hits three blocks of 0;
    three tokens an iteration, it ends at 832. Then 5 is admitted, and goes again at 852: it wants
    three blocks and 0 leaves two. Once it was preempted on its prefill replica."""
    world = World(RUNS_OUT.setting, list(RUNS_OUT.arrivals), RULES["round_robin"][1]).run()
    run = simulated(RUNS_OUT)
    assert_equal_runs(run, world)
    assert run.preemptions.tolist() == [0, 0, 0, 0, 1, 3, 0, 0]
    assert run.finish_ms[4] == 832.0
