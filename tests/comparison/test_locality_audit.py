from dataclasses import replace

import numpy as np
import pytest

from pointsman import POLICIES, FifoFleet, simulate, workload_of_columns
from pointsman.comparison.locality_audit import audit_fleet, audit_single
from pointsman.costs.iteration import IterationCosts
from pointsman.sim.batching import BatchingFleet, Engine, simulate_fleet
from pointsman.sim.conditions import Change, Conditions
from pointsman.sim.shortest_waits import shortest_waits_ms
from tests.small_fleets import asked, split

LOCALITY = POLICIES["locality_aware"]


def test_the_shortest_wait_is_that_of_whoever_is_free_first():
    arrival = np.array([0.0, 1.0, 2.0, 30.0])
    replica = np.array([0, 1, 0, 0], dtype=np.int32)
    finish = np.array([10.0, 21.0, 14.0, 40.0])
    assert shortest_waits_ms(arrival, replica, finish, 2).tolist() == [0.0, 0.0, 8.0, 0.0]


def test_a_session_kept_on_its_replica_waits_longer_by_what_is_reported():
    """The second turn comes at 4 while its home is busy until 10 and the other one is idle."""
    workload = workload_of_columns([0.0, 4.0], service_ms=[10.0, 10.0], session=[0, 0])
    audit = audit_single(simulate(workload, LOCALITY.bind(slack_ms=7.0), FifoFleet(replicas=2)))
    assert audit is not None
    assert (audit.choices, audit.over_bound) == (1, 0)
    assert audit.realised_extra_ms.worst == 6.0


def test_a_policy_without_a_bound_is_not_audited():
    workload = workload_of_columns([0.0], service_ms=[1.0])
    assert audit_single(simulate(workload, POLICIES["queue_aware"], FifoFleet(replicas=2))) is None


def test_pairs_are_not_audited_for_the_wait_that_came_is_not_the_one_expected():
    """Expected is the wait for both of a pair, known afterwards is that for the prefill."""
    run = simulate_fleet(asked((0, 8, 3), (0, 8, 3)), LOCALITY, split(1, 2))
    assert audit_fleet(run) is None


@pytest.fixture(scope="module")
def shared():
    """Requests that share one of three prefixes, at a load that makes queues."""
    draws = np.random.default_rng(5)
    chain = draws.integers(0, 3, 600)
    blocks = (chain[:, None] * 8 + np.arange(8)).reshape(-1)
    return workload_of_columns(
        np.cumsum(draws.exponential(12.0, 600)),
        prompt_tokens=np.full(600, 200),
        output_tokens=draws.integers(1, 30, 600),
        chain_start=np.arange(601) * 8,
        chain_blocks=blocks,
        block_size_tokens=16,
    )


FLEET = BatchingFleet.of(Engine(IterationCosts(5.0, 0.1, 0.1, 1e-4), kv_blocks=400), 3)


@pytest.mark.parametrize("slack_ms", [0.0, 10.0, 60.0])
def test_no_expected_extra_wait_exceeds_the_slack(shared, slack_ms):
    audit = audit_fleet(simulate_fleet(shared, LOCALITY.bind(slack_ms=slack_ms), FLEET))
    assert audit is not None
    assert audit.choices > 0
    assert audit.expected_extra_ms.worst is not None
    assert audit.expected_extra_ms.worst <= slack_ms + 1e-9


def test_the_automatic_slack_is_what_the_hit_saves(shared):
    run = simulate_fleet(shared, POLICIES["locality_auto"], FLEET)
    extra = run.expected_wait_ms - run.shortest_wait_ms
    assert (extra <= np.maximum(run.saved_ms, 0.0) + 1e-9).all()
    audit = audit_fleet(run)
    assert audit is not None
    assert audit.bound_ms is None


def test_a_replica_that_slows_down_is_where_real_waits_exceed_the_bound(shared):
    """It has 8 seats, and the router is not told that its answers take eight times as long."""
    fleet = BatchingFleet.of(replace(FLEET.engines[0], max_num_seqs=8), 3)
    slows = Conditions(changes=(Change(500.0, 0, "slows", 8.0),))
    calm = audit_fleet(simulate_fleet(shared, LOCALITY.bind(slack_ms=1.0), fleet))
    slowed = audit_fleet(simulate_fleet(shared, LOCALITY.bind(slack_ms=1.0), fleet, slows))
    assert calm is not None
    assert slowed is not None
    assert slowed.over_bound > calm.over_bound
