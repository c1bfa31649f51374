"""The router's page of metrics, read back by Prometheus' own parser."""

from __future__ import annotations

import math

import pytest

from pointsman.router.engine.kv_events import KvCounts
from pointsman.router.engine.reading import EngineReading
from pointsman.router.engine.scraper import Attempts, Reading
from pointsman.router.prometheus.counters import RouterCounters
from pointsman.router.prometheus.page import ReplicaState, RouterState, page
from pointsman.router.prometheus.text import Histogram, counter, gauge, histogram

parser = pytest.importorskip(
    "prometheus_client.parser", reason="prometheus_client is missing: pip install pointsman[test]"
)

A, B = "http://a:8001", "http://b:8002"


def families(text: str) -> dict:
    """By the parser's names: those of counters are without ``_total``."""
    return {family.name: family for family in parser.text_string_to_metric_families(text)}


class Shown:
    """The samples of a page."""

    def __init__(self, text: str) -> None:
        samples = [sample for family in families(text).values() for sample in family.samples]
        self._values = {
            (sample.name, *sorted(sample.labels.items())): sample.value for sample in samples
        }
        assert len(self._values) == len(samples), "a series stands on the page twice"

    def value(self, name: str, **labels: str) -> float | None:
        return self._values.get((f"pointsman_{name}", *sorted(labels.items())))

    @property
    def names(self) -> set[str]:
        return {key[0] for key in self._values}


def state(*replicas: ReplicaState, **fields) -> RouterState:
    replicas = replicas or (ReplicaState(A, 0, 0, False), ReplicaState(B, 0, 0, False))
    defaults = {"version": "0.1.0", "policy": "round_robin", "now_ms": 0.0}
    return RouterState(**{**defaults, "replicas": replicas, **fields})


def shown(counters: RouterCounters, now: RouterState | None = None) -> Shown:
    return Shown(page(counters, now or state()))


def test_requests_are_counted_by_replica_and_status():
    counters = RouterCounters(2)
    for replica, status in [(0, "ok"), (0, "ok"), (1, "ok"), (1, "truncated")]:
        counters.observe_end(replica, status)
    page = shown(counters)
    assert page.value("requests_total", replica=A, status="ok") == 2
    assert page.value("requests_total", replica=B, status="ok") == 1
    assert page.value("requests_total", replica=B, status="truncated") == 1
    assert page.value("requests_total", replica=A, status="error") == 0


def test_choices_are_counted_by_reason_and_retries_by_replica():
    counters = RouterCounters(2)
    counters.observe_choice(0, "sticky_session", 0.03)
    counters.observe_choice(1, "shortest_wait", 0.03)
    counters.observe_choice(1, "shortest_wait", 0.03)
    counters.observe_retry(1)
    page = shown(counters)
    assert page.value("choices_total", replica=B, reason="shortest_wait") == 2
    assert page.value("choices_total", replica=A, reason="sticky_session") == 1
    assert page.value("retries_total", replica=B) == 1
    assert page.value("retries_total", replica=A) == 0


def test_times_are_told_in_seconds_with_bounds_that_are_included():
    counters = RouterCounters(2)
    for ttft_ms in (40.0, 40.1, 250.0, 99_000.0):
        counters.observe_first_token(1, ttft_ms)
    page = shown(counters)

    def bucket(bound: str) -> float | None:
        return page.value("ttft_seconds_bucket", replica=B, le=bound)

    assert [bucket(le) for le in ("0.02", "0.04", "0.06", "0.25", "80.0", "+Inf")] == [
        0,
        1,
        2,
        3,
        3,
        4,
    ]
    assert page.value("ttft_seconds_count", replica=B) == 4
    assert page.value("ttft_seconds_sum", replica=B) == pytest.approx(99.3301)
    assert page.value("ttft_seconds_count", replica=A) == 0


def test_the_time_of_a_choice_is_told_in_fractions_of_a_millisecond():
    counters = RouterCounters(2)
    counters.observe_choice(0, "first", 0.015)
    page = shown(counters)
    assert page.value("choice_seconds_bucket", le="1e-05") == 0
    assert page.value("choice_seconds_bucket", le="2e-05") == 1


def test_a_wait_longer_than_expected_is_told_apart_from_one_that_was_shorter():
    counters = RouterCounters(2)
    counters.observe_wait(0, 100.0, 350.0)
    counters.observe_wait(0, 100.0, 20.0)
    page = shown(counters)
    assert page.value("expected_wait_seconds_sum", replica=A) == pytest.approx(0.2)
    assert page.value("realised_wait_seconds_sum", replica=A) == pytest.approx(0.37)
    assert page.value("wait_over_expected_seconds_sum", replica=A) == pytest.approx(0.25)
    assert page.value("wait_over_expected_seconds_bucket", replica=A, le="0.001") == 1
    assert page.value("wait_over_expected_seconds_count", replica=A) == 2


def test_predicted_hits_are_held_against_what_the_engines_reported():
    counters = RouterCounters(2)
    for predicted, reported in [(100, 80), (100, 0), (0, 64), (64, 64), (500, None)]:
        counters.observe_cached(0, predicted, reported)
    page = shown(counters)
    told = {
        name: page.value(f"{name}_total", replica=A)
        for name in (
            *("predicted_cached_tokens", "reported_cached_tokens", "false_hit_tokens"),
            *("unforeseen_hit_tokens", "predicted_hits", "false_hits"),
        )
    }
    assert told == {
        "predicted_cached_tokens": 264,
        "reported_cached_tokens": 208,
        "false_hit_tokens": 120,
        "unforeseen_hit_tokens": 64,
        "predicted_hits": 3,
        "false_hits": 1,
    }
    # Of the one whose engine said nothing too.
    assert page.value("expected_cached_tokens_total", replica=A) == 764


def test_what_is_held_shed_and_lost_is_told():
    counters = RouterCounters(2)
    counters.observe_release(2000.0)
    counters.observe_shed("queue_full")
    page = shown(counters, state(held_requests=3, lost_log_lines=17))
    assert page.value("held_requests") == 3
    assert page.value("hold_seconds_sum") == 2.0
    assert page.value("shed_requests_total", reason="queue_full") == 1
    assert page.value("decision_log_lost_lines_total") == 17


def test_a_replica_as_it_stands_is_told():
    replicas = (
        ReplicaState(A, 5, 9, False, outstanding_work_ms=1500.0),
        ReplicaState(B, 0, 2, True),
    )
    page = shown(RouterCounters(2), state(*replicas))
    assert page.value("requests_in_flight", replica=A) == 5
    assert page.value("connects_total", replica=A) == 9
    assert page.value("estimated_outstanding_work_seconds", replica=A) == 1.5
    assert [page.value("replica_up", replica=url) for url in (A, B)] == [1, 0]


READING = Reading(
    EngineReading(
        engine="vllm",
        waiting_requests=0,
        running_requests=7,
        kv_use=0.99,
        prompt_tokens=41_000,
        kv_blocks=1024,
    ),
    at_ms=1000.0,
    stale_after_ms=15_000.0,
)


def test_an_engines_values_stand_under_names_of_their_own_with_their_age():
    replica = ReplicaState(A, 2, 1, False, outstanding_work_ms=80.0, reading=READING)
    page = shown(RouterCounters(1), state(replica, now_ms=3500.0))
    labels = {"replica": A, "engine": "vllm"}
    assert page.value("engine_kv_use_ratio", **labels) == 0.99
    assert page.value("engine_running_requests", **labels) == 7
    assert page.value("engine_prompt_tokens_total", **labels) == 41_000
    assert page.value("engine_kv_blocks", **labels) == 1024
    assert page.value("engine_reading_age_seconds", **labels) == 2.5
    assert page.value("engine_reading_stale", **labels) == 0
    assert page.value("requests_in_flight", replica=A) == 2
    assert page.value("estimated_outstanding_work_seconds", replica=A) == 0.08


def test_an_old_reading_is_shown_and_said_to_be_stale():
    replica = ReplicaState(A, 0, 0, False, reading=READING)
    page = shown(RouterCounters(1), state(replica, now_ms=16_001.0))
    labels = {"replica": A, "engine": "vllm"}
    assert page.value("engine_reading_stale", **labels) == 1
    assert page.value("engine_kv_use_ratio", **labels) == 0.99
    assert page.value("replica_up", replica=A) == 1


def test_what_an_engine_does_not_tell_has_no_sample_and_a_zero_that_it_tells_has():
    replica = ReplicaState(A, 0, 0, False, reading=READING)
    page = shown(RouterCounters(1), state(replica))
    assert page.value("engine_waiting_requests", replica=A, engine="vllm") == 0
    assert "pointsman_engine_cached_tokens_total" not in page.names
    assert "pointsman_engine_preemptions_total" not in page.names


def test_without_scraping_and_kv_events_there_is_nothing_of_engines():
    assert not {name for name in shown(RouterCounters(2)).names if "engine" in name or "kv" in name}


def test_how_asking_and_listening_went_is_told():
    replica = ReplicaState(
        A,
        0,
        0,
        False,
        attempts=Attempts(answers=10, failures=3, last_error="x"),
        kv=[KvCounts(messages=5, gaps=1, clears=1), KvCounts(messages=2, replayed=4)],
        kv_is_silent=True,
    )
    page = shown(RouterCounters(1), state(replica))
    assert page.value("engine_scrapes_total", replica=A, outcome="ok") == 10
    assert page.value("engine_scrapes_total", replica=A, outcome="error") == 3
    assert page.value("kv_events_messages_total", replica=A) == 7
    assert page.value("kv_events_replayed_total", replica=A) == 4
    assert page.value("kv_events_gaps_total", replica=A) == 1
    assert page.value("kv_events_silent", replica=A) == 1


def test_a_replica_that_is_added_starts_at_nothing():
    counters = RouterCounters(1)
    counters.observe_choice(0, "first", 0.1)
    counters.observe_end(0, "ok")
    counters.add_replica()
    counters.observe_choice(1, "first", 0.1)
    page = shown(counters)
    assert page.value("choices_total", replica=B, reason="first") == 1
    assert page.value("requests_total", replica=B, status="ok") == 0


def test_every_family_says_what_it_is():
    counters = RouterCounters(1)
    counters.observe_choice(0, "first", 0.1)
    replica = ReplicaState(A, 0, 0, False, 1.0, READING, Attempts(), [KvCounts()])
    text = page(counters, state(replica))
    for name, family in families(text).items():
        assert name.startswith("pointsman_")
        assert family.documentation.endswith(".")
        assert family.type in ("counter", "gauge", "histogram")
        assert text.count(f"# TYPE {family.samples[0].name.removesuffix('_bucket')} ") == 1


# The format.


@pytest.mark.parametrize(
    "text", ['say "no"', "C:\\dir\\n", "two\nlines", "\\", "{}=,", "é\u2028漢"]
)
def test_labels_are_escaped(text):
    [sample] = families(gauge("g", "help", [({"a": text, "b": "x"}, 1)]))["g"].samples
    assert sample.labels == {"a": text, "b": "x"}


@pytest.mark.parametrize("text", ["two\nlines", "a \\ b", 'a "quoted" word'])
def test_help_is_escaped(text):
    assert families(gauge("g", text, [({}, 1)]))["g"].documentation == text


@pytest.mark.parametrize("value", [0, 10**18, -3, 0.1, 1e-9, 1.7e308, math.inf, -math.inf])
def test_values_are_told_exactly(value):
    [sample] = families(gauge("g", "help", [({}, value)]))["g"].samples
    assert sample.value == value


def test_nan_is_told():
    [sample] = families(gauge("g", "help", [({}, math.nan)]))["g"].samples
    assert math.isnan(sample.value)


def test_a_family_without_samples_is_not_told():
    assert counter("c_total", "help", [({}, None)]) == ""


def test_a_histogram_is_written_as_prometheus_documents_it():
    values = Histogram([10, 20])
    for value in (10, 15, 21):
        values.observe(value)
    assert histogram("h", "Help.", [({"a": "b"}, values)], per_unit=10) == (
        "# HELP h Help.\n"
        "# TYPE h histogram\n"
        'h_bucket{a="b",le="1.0"} 1\n'
        'h_bucket{a="b",le="2.0"} 2\n'
        'h_bucket{a="b",le="+Inf"} 3\n'
        'h_sum{a="b"} 4.6\n'
        'h_count{a="b"} 3\n'
    )
