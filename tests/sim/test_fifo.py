"""Properties of the single-server timeline, and agreement with the plain rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman import POLICIES, FifoFleet, InputError, Policy, policy, simulate, workload_of_columns
from pointsman.costs.stages import StageCosts
from pointsman.policies.catalogue import EVERYWHERE
from tests.oracle import Columns, route

LESSON_POLICIES = ("round_robin", "queue_aware", "locality_aware")
# Few distinct values, so that ties in arrival, wait and finish are common.
coarse_ms = st.integers(0, 40).map(lambda quarter: quarter / 4)


@st.composite
def columns(draw) -> Columns:
    n = draw(st.integers(1, 40))

    def some(values):
        return draw(st.lists(values, min_size=n, max_size=n))

    return Columns(
        arrival_ms=sorted(some(coarse_ms | st.floats(0, 50))),
        service_ms=some(coarse_ms | st.floats(0, 50)),
        prefix=some(st.none() | st.integers(0, 4)),
        session=some(st.none() | st.integers(0, 4)),
    )


def workload_of(given: Columns):
    held = [prefix for prefix in given.prefix if prefix is not None]
    lengths = [0 if prefix is None else 1 for prefix in given.prefix]
    return workload_of_columns(
        given.arrival_ms,
        service_ms=given.service_ms,
        session=[-1 if session is None else session for session in given.session],
        chain_start=np.concatenate(([0], np.cumsum(lengths))),
        chain_blocks=held,
    )


@settings(max_examples=300, deadline=None)
@given(
    columns(),
    st.sampled_from(LESSON_POLICIES),
    st.sampled_from((1, 2, 3, 63, 64, 65, 130)),
    st.sampled_from((0.0, 1.0, 5.0, 1e9)),
    st.sampled_from((0.0, 0.3, 1.0)),
)
def test_every_column_equals_the_plain_rule_bit_for_bit(given, name, replicas, slack_ms, speedup):
    rule = POLICIES[name]
    rule = rule.bind(slack_ms=slack_ms) if rule.parameters else rule
    routed = simulate(workload_of(given), rule, FifoFleet(replicas, speedup))
    expected = route(given, replicas, name, slack_ms, speedup)
    assert routed.replica.tolist() == expected.replica
    assert [rule.reasons[reason] for reason in routed.reason] == expected.reason
    assert routed.start_ms.tolist() == expected.start_ms
    assert routed.finish_ms.tolist() == expected.finish_ms
    assert routed.service_ms.tolist() == expected.service_ms
    assert (routed.cached_tokens > 0).tolist() == expected.hit


@settings(max_examples=60, deadline=None)
@given(columns(), st.sampled_from(sorted(EVERYWHERE)), st.integers(1, 70), st.integers(0, 5))
def test_a_replica_never_serves_two_requests_at_once(given, name, replicas, seed):
    routed = simulate(workload_of(given), POLICIES[name], FifoFleet(replicas), seed)
    for k in range(replicas):
        mine = np.flatnonzero(routed.replica == k)
        assert np.all(routed.start_ms[mine][1:] >= routed.finish_ms[mine][:-1])


@settings(max_examples=60, deadline=None)
@given(columns(), st.sampled_from(sorted(EVERYWHERE)), st.integers(1, 70))
def test_every_request_is_served_once_after_it_arrived(given, name, replicas):
    routed = simulate(workload_of(given), POLICIES[name], FifoFleet(replicas))
    assert routed.replica.shape == (len(given.arrival_ms),)
    assert np.all((routed.replica >= 0) & (routed.replica < replicas))
    assert np.all(routed.start_ms >= given.arrival_ms)
    assert np.all(routed.finish_ms >= routed.start_ms)


@settings(max_examples=100, deadline=None)
@given(columns(), st.integers(1, 9), st.sampled_from((0.0, 2.0, 10.0)))
def test_no_locality_choice_waits_longer_than_the_shortest_wait_plus_slack(
    given, replicas, slack_ms
):
    rule = POLICIES["locality_aware"].bind(slack_ms=slack_ms)
    routed = simulate(workload_of(given), rule, FifoFleet(replicas))
    free_ms = np.zeros(replicas)
    for i, k in enumerate(routed.replica):
        waits = np.maximum(0.0, free_ms - given.arrival_ms[i])
        assert waits[k] <= waits.min() + slack_ms
        free_ms[k] = routed.finish_ms[i]


@settings(max_examples=100, deadline=None)
@given(columns(), st.integers(1, 9))
def test_the_reasons_of_locality_are_true(given, replicas):
    rule = POLICIES["locality_aware"]
    routed = simulate(workload_of(given), rule, FifoFleet(replicas))
    owner, held = {}, {}
    for i, k in enumerate(routed.replica):
        reason = rule.reasons[routed.reason[i]]
        if reason == "sticky_session":
            assert owner[given.session[i]] == k
        if reason == "prefix_locality":
            assert k in held[given.prefix[i]]
        owner[given.session[i]] = k
        held.setdefault(given.prefix[i], set()).add(k)


@pytest.mark.parametrize("name", sorted(EVERYWHERE))
def test_the_same_seed_gives_the_same_bytes_and_the_input_is_untouched(name):
    rng = np.random.default_rng(3)
    arrival_ms = np.cumsum(rng.exponential(2.0, 500))
    workload = workload_of_columns(arrival_ms.copy(), service_ms=rng.exponential(9.0, 500))
    first = simulate(workload, POLICIES[name], FifoFleet(5), seed=11)
    second = simulate(workload, POLICIES[name], FifoFleet(5), seed=11)
    assert first.start_ms.tobytes() == second.start_ms.tobytes()
    assert first.replica.tobytes() == second.replica.tobytes()
    assert workload.arrival_ms.tobytes() == arrival_ms.tobytes()


def test_another_seed_changes_what_random_policies_do():
    workload = workload_of_columns(np.arange(200.0), service_ms=np.full(200, 3.0))
    runs = [simulate(workload, POLICIES["random"], FifoFleet(4), seed) for seed in (0, 1)]
    assert runs[0].replica.tolist() != runs[1].replica.tolist()


def test_a_request_of_tokens_costs_its_output_and_its_uncached_prompt():
    # Two requests with the same 32 tokens in two blocks; 40 prompt and 10 output tokens.
    workload = workload_of_columns(
        [0.0, 100.0],
        prompt_tokens=[40, 40],
        output_tokens=[10, 10],
        chain_start=[0, 2, 4],
        chain_blocks=[0, 1, 0, 1],
        block_size_tokens=16,
    )
    costs = StageCosts(prefill_ms_per_token=0.5, decode_ms_per_token=2.0)
    routed = simulate(workload, POLICIES["round_robin"], FifoFleet(1, costs=costs))
    assert routed.cached_tokens.tolist() == [0, 32]
    assert routed.service_ms.tolist() == [40 * 0.5 + 20, 8 * 0.5 + 20]


def test_only_leading_blocks_count_as_cached():
    # The second request shares block 1 in second place but not block 0 before it.
    workload = workload_of_columns(
        [0.0, 1.0, 2.0],
        prompt_tokens=[32, 32, 32],
        output_tokens=[1, 1, 1],
        chain_start=[0, 2, 4, 6],
        chain_blocks=[0, 1, 2, 1, 0, 3],
        block_size_tokens=16,
    )
    routed = simulate(workload, POLICIES["round_robin"], FifoFleet(1))
    assert routed.cached_tokens.tolist() == [0, 0, 16]


def test_every_stage_of_the_costs_reaches_the_service_time():
    workload = workload_of_columns([0.0], prompt_tokens=[128], output_tokens=[64])
    costs = StageCosts(
        prefill_ms_per_token=0.01,
        decode_ms_per_token=0.02,
        comm_ms_per_token=0.03,
        pipeline_penalty_ms=0.25,
        tp_degree=2,
        pp_stages=3,
        serving_mode="pd_disaggregated",
        kv_bytes_per_token=16,
        handoff_base_ms=0.2,
        handoff_bytes_per_ms=1024,
    )
    routed = simulate(workload, POLICIES["round_robin"], FifoFleet(1, costs=costs))
    # prefill 1.28, decode 1.28, communication 2 x 0.03, pipeline 2 x 0.25, hand-off 0.2 + 2
    assert routed.service_ms[0] == pytest.approx(1.28 + 1.28 + 0.06 + 0.5 + 2.2, abs=1e-12)


def test_what_a_policy_does_not_declare_is_nan():
    @policy(rule="test", source="test", reasons=("nan", "number"), reads=("queue",))
    def looks(request, view, parameters):
        return 0, (1 if view[2, 0] == view[2, 0] else 0)

    routed = simulate(workload_of_columns([0.0], service_ms=[1.0]), looks, FifoFleet(1))
    assert looks.reasons[routed.reason[0]] == "nan"


def test_a_choice_outside_the_fleet_is_an_error_that_names_the_request():
    @policy(rule="test", source="test", reasons=("wrong",), reads=())
    def wrong(request, view, parameters):
        return 2, 0

    workload = workload_of_columns([0.0, 1.0], service_ms=[1.0, 1.0])
    with pytest.raises(InputError, match=r"policy wrong .* request 0 .*candidate in 0\.\.1"):
        simulate(workload, wrong, FifoFleet(2))


@pytest.mark.parametrize(
    ("replicas", "speedup", "message"),
    [
        (0, 0.3, "replicas is 0"),
        (70000, 0.3, "replicas is 70000"),
        (2, 1.5, "cache_hit_speedup is 1.5"),
        (2, float("nan"), "cache_hit_speedup is nan"),
    ],
)
def test_an_impossible_fleet_is_refused(replicas, speedup, message):
    with pytest.raises(InputError, match=message):
        FifoFleet(replicas, speedup)


def test_a_user_policy_is_an_ordinary_policy():
    @policy(rule="the last", source="test", reasons=("last",), reads=("queue",))
    def last(request, view, parameters):
        return view.shape[1] - 1, 0

    assert isinstance(last, Policy)
    routed = simulate(workload_of_columns([0.0], service_ms=[1.0]), last, FifoFleet(3))
    assert routed.replica.tolist() == [2]


@pytest.mark.parametrize("reason", [1, -1, 300])
def test_a_reason_that_the_policy_does_not_have_is_an_error(reason):
    @policy(rule="test", source="test", reasons=("only",), reads=())
    def wordy(request, view, parameters):
        return 0, reason

    with pytest.raises(InputError, match=r"policy wordy .*reason in 0\.\.0"):
        simulate(workload_of_columns([0.0], service_ms=[1.0]), wordy, FifoFleet(2))


chains = st.lists(st.integers(0, 3), max_size=6).map(
    lambda choices: [tuple(choices[: depth + 1]) for depth in range(len(choices))]
)


@settings(max_examples=200, deadline=None)
@given(st.lists(chains, min_size=1, max_size=25), st.sampled_from((1, 3, 64, 65, 130)), st.data())
def test_chains_of_blocks_equal_a_plain_model(given_chains, replicas, data):
    """A block is named by all choices up to it, so that equal names mean equal prefixes."""
    slack_ms = data.draw(st.sampled_from((0.0, 3.0, 1e9)))
    numbers: dict[tuple, int] = {}
    flat = [numbers.setdefault(block, len(numbers)) for chain in given_chains for block in chain]
    lengths = [len(chain) for chain in given_chains]
    n = len(given_chains)
    workload = workload_of_columns(
        np.arange(n) * 2.0,
        prompt_tokens=[16 * length + 5 for length in lengths],
        output_tokens=[10] * n,
        chain_start=np.concatenate(([0], np.cumsum(lengths))),
        chain_blocks=flat,
        block_size_tokens=16,
    )
    costs = StageCosts(prefill_ms_per_token=0.5, decode_ms_per_token=1.0)
    rule = POLICIES["locality_aware"].bind(slack_ms=slack_ms)
    routed = simulate(workload, rule, FifoFleet(replicas, costs=costs))
    free, held = [0.0] * replicas, [set() for _ in range(replicas)]
    for i, chain in enumerate(given_chains):
        now = 2.0 * i
        waits = [max(0.0, at - now) for at in free]
        shortest = waits.index(min(waits))
        depths = [next((d for d, b in enumerate(chain) if b not in h), len(chain)) for h in held]
        within = [
            k for k in range(replicas) if depths[k] and waits[k] <= waits[shortest] + slack_ms
        ]
        best = min(within, key=lambda k: (-depths[k], waits[k], k)) if within else shortest
        assert routed.replica[i] == best
        assert routed.cached_tokens[i] == 16 * depths[best]
        assert rule.reasons[routed.reason[i]] == ("prefix_locality" if within else "queue_fallback")
        free[best] = max(now, free[best]) + 10.0 + (16 * len(chain) + 5 - 16 * depths[best]) * 0.5
        held[best].update(chain)
