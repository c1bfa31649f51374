"""docs/engines.md names what the code has, and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from pointsman.router.engine.fetch import Limits
from pointsman.router.engine.kv_events import REPLAY_TIMEOUT_S, SILENT_AFTER_MS, KvCounts
from pointsman.router.engine.names import WANTED
from pointsman.router.engine.reading import EngineReading
from pointsman.router.engine.scraper import (
    JITTER,
    STALE_INTERVALS,
    Attempts,
    Reading,
    ScrapeSettings,
)
from pointsman.router.prometheus.counters import RouterCounters
from pointsman.router.prometheus.page import ReplicaState, RouterState, page
from pointsman.router.prometheus.pair_counters import PairCounters

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "engines.md").read_text()


def test_every_name_of_an_engine_that_is_read_is_on_the_page_and_no_other():
    assert set(re.findall(r"(?:vllm|sglang|llamacpp):\w+", TEXT)) == WANTED


def test_every_field_of_a_reading_is_on_the_page():
    assert all(f"`{field}`" in TEXT for field in EngineReading.__slots__ if field != "engine")


def test_every_metric_of_the_router_is_on_the_page_and_no_other():
    counters = RouterCounters(1)
    counters.observe_choice(0, "first", 0.1)
    counters.observe_shed("full")
    every = EngineReading("vllm", **dict.fromkeys(EngineReading.__slots__[1:], 1))
    replica = ReplicaState(
        "http://a", 0, 0, False, 1.0, Reading(every, 0.0, 1.0), Attempts(), [KvCounts()]
    )
    shown = page(counters, RouterState("1", "p", 0.0, [replica]))
    pairs = PairCounters([("http://a", "http://b")])
    pairs.observe_handoff(0, 1.0, 1)
    shown += pairs.page()
    names = set(re.findall(r"^# TYPE (\w+) ", shown, flags=re.MULTILINE))
    assert set(re.findall(r"`(pointsman_\w+)`", TEXT)) == names


def test_the_figures_on_the_page_are_those_of_the_code():
    assert (ScrapeSettings().interval_s, JITTER, STALE_INTERVALS) == (5.0, 0.1, 3)
    assert Limits() == Limits(timeout_s=2.0, max_body_bytes=2 << 20)
    assert (REPLAY_TIMEOUT_S, SILENT_AFTER_MS) == (1.0, 30_000.0)
    for said in ("Every 5 s", "up to 10 % longer", "has 2 s and 2 MiB", "three intervals"):
        assert said in TEXT
    assert "for 30 s and no event" in TEXT
    assert "for 1 s at most" in TEXT
