from __future__ import annotations

from pathlib import Path

import pytest

from pointsman.workload.formats import read_workload
from pointsman.workload.statistics import statistics_of

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_the_conversation_example_is_like_the_mooncake_trace():
    # The trace: 3.40 requests/s, means of 12,035 and 343 tokens, P50 6,909, ceiling 37.3 %.
    statistics = statistics_of(read_workload(EXAMPLES / "conversation.jsonl.gz"))
    assert statistics.requests == 4_000
    assert statistics.mean_rate_rps == pytest.approx(3.40, rel=0.02)
    assert statistics.prompt_tokens.mean == pytest.approx(12_035, rel=0.02)
    assert statistics.prompt_tokens.p50 == pytest.approx(6_909, rel=0.03)
    assert statistics.output_tokens.mean == pytest.approx(343, rel=0.02)
    assert statistics.prefix.hit_ceiling_fraction == pytest.approx(0.373, abs=0.01)


def test_the_lessons_example_has_prefixes_sessions_and_service_times():
    statistics = statistics_of(read_workload(EXAMPLES / "lesson_routing.jsonl"))
    assert (statistics.requests, statistics.sessions) == (16, 8)
    assert statistics.service_ms.rows == 16
    assert statistics.prefix.distinct_blocks == 3


def test_the_poisson_example_has_lengths_and_no_prefixes():
    statistics = statistics_of(read_workload(EXAMPLES / "poisson.jsonl"))
    assert statistics.requests == 2_000
    assert statistics.interarrival_cv == pytest.approx(1.0, abs=0.06)
    assert statistics.prefix is None


def test_the_examples_are_small():
    assert sum(path.stat().st_size for path in EXAMPLES.iterdir()) < 1_500_000
