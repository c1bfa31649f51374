"""The contract of the lesson on serving replica routing, and what it leaves open."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman import (
    InputError,
    compare_replica_strategies,
    select_replica,
    simulate_replica_routing,
    summarize_replica_service,
)
from tests.oracle import route_records

FOUR_REQUESTS = [
    {"request_id": "r0", "arrival_ms": 0.0, "service_ms": 20.0, "prefix_key": "a", "session_id": 1},
    {"request_id": "r1", "arrival_ms": 1.0, "service_ms": 8.0, "prefix_key": "b", "session_id": 2},
    {"request_id": "r2", "arrival_ms": 2.0, "service_ms": 8.0, "prefix_key": "a", "session_id": 3},
    {"request_id": "r3", "arrival_ms": 3.0, "service_ms": 6.0, "prefix_key": "b", "session_id": 2},
]
STRATEGIES = ("round_robin", "queue_aware", "locality_aware")


def two_replicas():
    return [
        {"replica_id": 0, "available_at_ms": 20.0, "cached_prefixes": {"a"}, "request_count": 1},
        {"replica_id": 1, "available_at_ms": 5.0, "cached_prefixes": set(), "request_count": 1},
    ]


# The lesson's own assertions.


@pytest.mark.parametrize(
    ("strategy", "index", "slack_ms", "expected"),
    [
        ("round_robin", 3, 5.0, (1, "round_robin")),
        ("queue_aware", 0, 5.0, (1, "shortest_queue")),
        ("locality_aware", 0, 20.0, (0, "prefix_locality")),
        ("locality_aware", 0, 5.0, (1, "queue_fallback")),
    ],
)
def test_each_strategy_reads_its_signals_and_keeps_the_slack(strategy, index, slack_ms, expected):
    request = {"arrival_ms": 0.0, "prefix_key": "a", "session_id": "new"}
    assert select_replica(request, two_replicas(), strategy, index, {}, slack_ms) == expected


def test_the_timeline_has_no_overlap_and_some_hit():
    records = simulate_replica_routing(FOUR_REQUESTS, 2, "locality_aware", locality_slack_ms=10.0)
    assert len(records) == 4
    finished = {}
    for record in records:
        assert record["arrival_ms"] <= record["start_ms"] <= record["finish_ms"]
        assert record["queue_wait_ms"] == record["start_ms"] - record["arrival_ms"]
        assert record["start_ms"] >= finished.get(record["replica_id"], 0.0)
        finished[record["replica_id"]] = record["finish_ms"]
    assert any(record["cache_hit"] for record in records)


def test_the_comparison_is_sorted_and_leaves_the_requests_alone():
    original = copy.deepcopy(FOUR_REQUESTS)
    compared = compare_replica_strategies(original, 2, locality_slack_ms=10.0)
    assert original == FOUR_REQUESTS
    assert {item["strategy"] for item in compared} == set(STRATEGIES)
    order = [
        (item["metrics"]["p95_queue_wait_ms"], -item["metrics"]["throughput_requests_per_s"])
        for item in compared
    ]
    assert order == sorted(order)
    for item in compared:
        assert 0.0 <= item["metrics"]["cache_hit_rate"] <= 1.0
        assert item["metrics"]["throughput_requests_per_s"] > 0.0


# What it leaves open.


def test_ties_in_arrival_are_ordered_by_request_id_as_a_string():
    requests = [
        {"request_id": name, "arrival_ms": 5, "service_ms": 1} for name in ("r9", "r10", "r1")
    ]
    records = simulate_replica_routing(requests, 2, "round_robin")
    assert [record["request_id"] for record in records] == ["r1", "r10", "r9"]


def test_the_queue_choice_is_the_lowest_index_among_equal_waits():
    replicas = two_replicas()
    replicas[0]["available_at_ms"] = 9.0  # idle later than the other, but both are idle at 10
    assert select_replica({"arrival_ms": 10.0}, replicas, "queue_aware", 0, {}, 0.0)[0] == 0


def test_an_infinite_slack_always_stays_local():
    request = {"arrival_ms": 0.0, "prefix_key": "a"}
    chosen = select_replica(request, two_replicas(), "locality_aware", 0, {}, math.inf)
    assert chosen == (0, "prefix_locality")


def test_a_window_of_no_length_has_no_throughput():
    records = simulate_replica_routing(
        [{"request_id": "r", "arrival_ms": 3.0, "service_ms": 0.0}], 2, "queue_aware"
    )
    assert summarize_replica_service(records, 2)["throughput_requests_per_s"] == 0.0


def test_no_requests_give_the_empty_summary():
    assert simulate_replica_routing([], 3, "queue_aware") == []
    assert summarize_replica_service([], 3) == {
        "request_count": 0,
        "mean_queue_wait_ms": 0.0,
        "p95_queue_wait_ms": 0.0,
        "p99_queue_wait_ms": 0.0,
        "throughput_requests_per_s": 0.0,
        "cache_hit_rate": 0.0,
        "load_skew_ratio": 0.0,
    }


def test_unknown_keys_pass_through_and_values_keep_their_types():
    request = {"request_id": "r", "arrival_ms": 1, "service_ms": 2, "colour": ["blue"]}
    (record,) = simulate_replica_routing([request], 1, "queue_aware")
    assert record["colour"] == ["blue"]
    assert record["arrival_ms"] == 1
    assert isinstance(record["arrival_ms"], int)
    assert isinstance(record["replica_id"], int)
    assert record["cache_hit"] is False


def test_round_robin_needs_no_times():
    assert select_replica({}, [{}, {}, {}], "round_robin", 4, {}, 5.0) == (1, "round_robin")


def test_the_summary_adds_latency_skew_reasons_and_what_each_replica_did():
    records = simulate_replica_routing(FOUR_REQUESTS, 2, "round_robin")
    summary = summarize_replica_service(records, 2)
    # Replica 0: r0 0-20, r2 20-25.6 (a hit, 8 x 0.7); replica 1: r1 1-9, r3 9-13.2 (6 x 0.7).
    assert summary["p50_latency_ms"] == records[3]["finish_ms"] - 3.0
    assert summary["p99_latency_ms"] == records[2]["finish_ms"] - 2.0
    assert summary["route_reasons"] == {"round_robin": 4}
    busy = [replica["busy_ms"] for replica in summary["replicas"]]
    assert busy == pytest.approx([25.6, 12.2])
    assert summary["busy_skew_ratio"] == pytest.approx((25.6 - 12.2) / 18.9)
    assert [replica["requests"] for replica in summary["replicas"]] == [2, 2]
    assert [replica["tokens"] for replica in summary["replicas"]] == [None, None]


def test_tokens_are_added_up_where_the_records_bring_them():
    requests = [
        {"request_id": f"r{i}", "arrival_ms": i, "service_ms": 1, "prompt_tokens": 10 * i}
        for i in (1, 2, 3)
    ]
    records = simulate_replica_routing(requests, 2, "round_robin")
    summary = summarize_replica_service(records, 2)
    assert [replica["tokens"] for replica in summary["replicas"]] == [40, 20]


def test_what_one_record_generated_is_counted_once():
    record = {
        **simulate_replica_routing(FOUR_REQUESTS[:1], 1, "round_robin")[0],
        "prompt_tokens": 10,
        "output_tokens": 5,
        "generate_tokens": 7,
    }
    assert summarize_replica_service([record], 1)["replicas"][0]["tokens"] == 15
    del record["output_tokens"]
    assert summarize_replica_service([record], 1)["replicas"][0]["tokens"] == 17


@pytest.mark.parametrize(("index", "replica"), [(10**30, 1), (-1, 2), (np.int64(4), 1)])
def test_the_turn_of_round_robin_is_the_index_modulo_the_replicas(index, replica):
    assert select_replica({}, [{}, {}, {}], "round_robin", index, {}, 5.0)[0] == replica


@pytest.mark.parametrize("kind", [set, frozenset, list, tuple, dict.fromkeys])
def test_cached_prefixes_are_any_collection_of_keys(kind):
    replicas = two_replicas()
    replicas[0]["cached_prefixes"] = kind(["abc"])
    request = {"arrival_ms": 0.0, "prefix_key": "abc"}
    chosen = select_replica(request, replicas, "locality_aware", 0, {}, 20.0)
    assert chosen == (0, "prefix_locality")


@pytest.mark.parametrize("yes", [True, 1, 1.0, np.True_, np.int8(1)])
def test_a_hit_may_be_a_bool_or_a_number(yes):
    records = simulate_replica_routing(FOUR_REQUESTS, 2, "queue_aware")
    changed = [{**record, "cache_hit": yes if record["cache_hit"] else 0} for record in records]
    assert summarize_replica_service(changed, 2) == summarize_replica_service(records, 2)


names = st.none() | st.sampled_from(("a", "b", "c")) | st.integers(0, 2)
request_lists = st.lists(
    st.fixed_dictionaries(
        {
            "arrival_ms": st.integers(0, 20) | st.floats(0, 20),
            "service_ms": st.integers(0, 9) | st.floats(0, 30),
        },
        optional={"prefix_key": names, "session_id": names, "note": st.text(max_size=2)},
    ),
    max_size=30,
).map(lambda rows: [{"request_id": f"r{i}", **row} for i, row in enumerate(rows)])


@settings(max_examples=200, deadline=None)
@given(request_lists, st.integers(1, 5), st.sampled_from(STRATEGIES), st.floats(0, 50))
def test_records_equal_the_plain_rule_exactly(requests, replicas, strategy, slack_ms):
    ours = simulate_replica_routing(requests, replicas, strategy, locality_slack_ms=slack_ms)
    assert ours == route_records(requests, replicas, strategy, slack_ms)


@settings(max_examples=200, deadline=None)
@given(request_lists, st.integers(1, 5), st.floats(0, 50))
def test_selecting_one_by_one_takes_the_same_choices(requests, replicas, slack_ms):
    records = simulate_replica_routing(
        requests, replicas, "locality_aware", locality_slack_ms=slack_ms
    )
    fleet = [{"available_at_ms": 0.0, "cached_prefixes": set()} for _ in range(replicas)]
    owner = {}
    for index, record in enumerate(records):
        chosen = select_replica(record, fleet, "locality_aware", index, owner, slack_ms)
        assert chosen == (record["replica_id"], record["route_reason"])
        fleet[chosen[0]]["available_at_ms"] = record["finish_ms"]
        if record.get("prefix_key") is not None:
            fleet[chosen[0]]["cached_prefixes"].add(record["prefix_key"])
        if record.get("session_id") is not None:
            owner[record["session_id"]] = chosen[0]


# Bad input: one error, which is also a ValueError, naming what came and where.


def bad(index=1, **changes):
    requests = copy.deepcopy(FOUR_REQUESTS)
    requests[index].update(changes)
    return requests


def without(key):
    requests = copy.deepcopy(FOUR_REQUESTS)
    del requests[2][key]
    return requests


@pytest.mark.parametrize(
    ("requests", "message"),
    [
        (bad(arrival_ms=math.nan), r"requests\[1\]: arrival_ms is nan"),
        (bad(arrival_ms=math.inf), r"requests\[1\]: arrival_ms is inf"),
        (bad(arrival_ms=-1), r"requests\[1\]: arrival_ms is -1"),
        (bad(arrival_ms="3"), r"requests\[1\]: arrival_ms is '3'"),
        (bad(arrival_ms=True), r"requests\[1\]: arrival_ms is True"),
        (bad(arrival_ms=None), r"requests\[1\]: arrival_ms is None"),
        (bad(service_ms=-0.5), r"requests\[1\]: service_ms is -0.5"),
        (bad(service_ms=10**400), r"requests\[1\]: service_ms is 1000"),
        (bad(request_id=None), r"requests\[1\]: request_id is None"),
        (bad(request_id="r3"), r"requests\[3\]: request_id is 'r3'; expected an id not used"),
        (bad(prefix_key=["a"]), r"requests\[1\]: prefix_key is \['a'\]"),
        (bad(session_id={}), r"requests\[1\]: session_id is \{\}"),
        (bad(prompt_tokens=-1), r"requests\[1\]: prompt_tokens is -1"),
        (bad(prompt_tokens=math.nan), r"requests\[1\]: prompt_tokens is nan"),
        (bad(output_tokens=math.inf), r"requests\[1\]: output_tokens is inf"),
        (bad(output_tokens="9"), r"requests\[1\]: output_tokens is '9'"),
        (bad(generate_tokens=None), r"requests\[1\]: generate_tokens is None"),
        (bad(generate_tokens=10**30), r"requests\[1\]: generate_tokens is 1000"),
        (without("arrival_ms"), r"requests\[2\]: arrival_ms is missing"),
        (without("service_ms"), r"requests\[2\]: service_ms is missing"),
        (without("request_id"), r"requests\[2\]: request_id is missing"),
        ([3], r"requests\[0\]"),
        ("text", r"requests: got str"),
        (None, r"requests: got NoneType"),
    ],
)
def test_a_bad_request_is_refused(requests, message):
    with pytest.raises(InputError, match=message) as caught:
        simulate_replica_routing(requests, 2, "queue_aware")
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"strategy": "fastest"}, r"strategy 'fastest' is unknown"),
        ({"strategy": "queue-aware"}, r"did you mean queue_aware\?"),
        ({"strategy": None}, r"strategy is None"),
        ({"num_replicas": 0}, r"num_replicas is 0"),
        ({"num_replicas": -1}, r"num_replicas is -1"),
        ({"num_replicas": 2.0}, r"num_replicas is 2.0"),
        ({"num_replicas": True}, r"num_replicas is True"),
        ({"num_replicas": "2"}, r"num_replicas is '2'"),
        ({"locality_slack_ms": -1.0}, r"locality_slack_ms is -1.0"),
        ({"locality_slack_ms": math.nan}, r"locality_slack_ms is nan"),
        ({"locality_slack_ms": 10**400}, r"locality_slack_ms is 1000"),
        ({"num_replicas": np.True_}, r"num_replicas is np.True_"),
        ({"cache_hit_speedup": 1.01}, r"cache_hit_speedup is 1.01"),
        ({"cache_hit_speedup": -0.1}, r"cache_hit_speedup is -0.1"),
        ({"cache_hit_speedup": math.nan}, r"cache_hit_speedup is nan"),
    ],
)
@pytest.mark.parametrize("requests", [FOUR_REQUESTS, []])
def test_a_bad_argument_is_refused_whatever_the_requests(requests, arguments, message):
    given = {"num_replicas": 2, "strategy": "round_robin", **arguments}
    with pytest.raises(InputError, match=message):
        simulate_replica_routing(requests, **given)


def holding(prefixes):
    return [{"available_at_ms": 1, "cached_prefixes": prefixes}]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"replicas": []}, r"replicas is \[\]"),
        ({"replicas": [{}]}, r"replicas\[0\]: available_at_ms is missing"),
        ({"replicas": [{"available_at_ms": -1}]}, r"replicas\[0\]: available_at_ms is -1"),
        ({"replicas": [{"available_at_ms": 1}]}, r"replicas\[0\]: cached_prefixes is missing"),
        ({"session_owner": {"s": 2}}, r"session_owner\['s'\] is 2; expected an integer in 0\.\.1"),
        ({"session_owner": {"s": -1}}, r"session_owner\['s'\] is -1"),
        ({"session_owner": {"s": "0"}}, r"session_owner\['s'\] is '0'"),
        ({"session_owner": None}, r"session_owner is None; expected a dict of session to replica"),
        ({"session_owner": ["s"]}, r"session_owner is \['s'\]"),
        ({"replicas": holding(5)}, r"replicas\[0\]: cached_prefixes is 5; expected a set of keys"),
        ({"replicas": holding("cab")}, r"replicas\[0\]: cached_prefixes is 'cab'"),
        ({"replicas": holding(None)}, r"replicas\[0\]: cached_prefixes is None"),
        ({"round_robin_index": "x"}, r"round_robin_index is 'x'; expected an integer"),
        ({"round_robin_index": 1.7}, r"round_robin_index is 1.7"),
        ({"round_robin_index": True}, r"round_robin_index is True"),
        ({"round_robin_index": None}, r"round_robin_index is None"),
        ({"request": {"prefix_key": "a"}}, r"request: arrival_ms is missing"),
        ({"request": 7}, r"request: "),
        ({"strategy": "best"}, r"strategy 'best' is unknown"),
    ],
)
def test_a_bad_selection_is_refused(changes, message):
    given = {
        "request": {"arrival_ms": 0.0, "prefix_key": "a", "session_id": "s"},
        "replicas": two_replicas(),
        "strategy": "locality_aware",
        "round_robin_index": 0,
        "session_owner": {},
        "locality_slack_ms": 5.0,
        **changes,
    }
    with pytest.raises(InputError, match=message):
        select_replica(**given)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"replica_id": 2}, r"records\[1\]: replica_id is 2; expected an integer in 0\.\.1"),
        ({"replica_id": None}, r"records\[1\]: replica_id is None"),
        ({"finish_ms": math.nan}, r"records\[1\]: finish_ms is nan"),
        ({"queue_wait_ms": -3}, r"records\[1\]: queue_wait_ms is -3"),
        ({"cache_hit": "no"}, r"records\[1\]: cache_hit is 'no'; expected True or False"),
        ({"cache_hit": None}, r"records\[1\]: cache_hit is None"),
        ({"cache_hit": 2}, r"records\[1\]: cache_hit is 2"),
        ({"route_reason": ["because"]}, r"records\[1\]: route_reason is \['because'\]"),
        ({"prompt_tokens": 1, "output_tokens": -1}, r"records\[1\]: output_tokens is -1"),
        ({"prompt_tokens": 10**30}, r"records\[1\]: prompt_tokens is 1000"),
    ],
)
def test_a_bad_record_is_refused(change, message):
    records = simulate_replica_routing(FOUR_REQUESTS, 2, "queue_aware")
    records[1].update(change)
    with pytest.raises(InputError, match=message):
        summarize_replica_service(records, 2)


@pytest.mark.parametrize(
    "key", ["replica_id", "arrival_ms", "finish_ms", "queue_wait_ms", "cache_hit"]
)
def test_a_record_without_a_needed_key_is_refused(key):
    records = simulate_replica_routing(FOUR_REQUESTS, 2, "queue_aware")
    del records[3][key]
    with pytest.raises(InputError, match=rf"records\[3\]: {key} is missing"):
        summarize_replica_service(records, 2)


def test_a_summary_needs_no_further_keys():
    records = simulate_replica_routing(FOUR_REQUESTS, 2, "queue_aware")
    needed = ("replica_id", "arrival_ms", "finish_ms", "queue_wait_ms", "cache_hit")
    bare = [{key: record[key] for key in needed} for record in records]
    full, summary = summarize_replica_service(records, 2), summarize_replica_service(bare, 2)
    assert summary["p95_queue_wait_ms"] == full["p95_queue_wait_ms"]
    assert summary["busy_skew_ratio"] == pytest.approx(full["busy_skew_ratio"])
