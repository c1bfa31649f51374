"""A comparison as a table."""

from __future__ import annotations

import pytest

from pointsman import POLICIES, FifoFleet, StageCosts, workload_of_columns
from pointsman.comparison.policies import compare_policies
from pointsman.report.comparison import comparison_text, costs_line
from pointsman.workload.reading import ReadOptions

DEFAULTS = ("round_robin", "queue_aware", "locality_aware")


def table_of(policies, first_service_ms):
    workload = workload_of_columns([0.0, 1.0], service_ms=[first_service_ms, 5.0])
    return comparison_text(
        compare_policies(workload, policies, FifoFleet(1)), ReadOptions(), "table"
    )


def test_the_default_policies_fit_120_columns_under_overload():
    table = table_of([POLICIES[name] for name in DEFAULTS], 300_000.0)
    assert "300,004" in table
    assert max(map(len, table.splitlines())) <= 120


def test_a_long_label_cuts_no_figure():
    long = POLICIES["locality_aware"].bind(slack_ms=1.23456e300)
    table = table_of([long, POLICIES["random"]], 90_000_000.0)
    assert table.count("90,000,000") >= 2
    assert "…" not in table


def test_prose_is_wrapped_at_100_columns():
    text = table_of([POLICIES[name] for name in DEFAULTS], 300_000.0)
    prose = text.rpartition("\n\n")[2]
    assert max(map(len, prose.splitlines())) <= 100


@pytest.mark.parametrize(
    ("costs", "line"),
    [
        (
            StageCosts(),
            "costs: prefill_ms_per_token 0.05, decode_ms_per_token 0.05, cache_hit_speedup 0.3;"
            " others default",
        ),
        (
            StageCosts(prefill_ms_per_token=0.0123456, tp_degree=2),
            "costs: prefill_ms_per_token 0.0123456, decode_ms_per_token 0.05,"
            " comm_ms_per_token 0.03, tp_degree 2, cache_hit_speedup 0.3; others default",
        ),
        (
            StageCosts(serving_mode="pd_disaggregated", kv_bytes_per_token=131072),
            "costs: prefill_ms_per_token 0.05, decode_ms_per_token 0.05,"
            " serving_mode pd_disaggregated, kv_bytes_per_token 131,072, handoff_base_ms 0,"
            " handoff_bytes_per_ms 1, cache_hit_speedup 0.3; others default",
        ),
    ],
)
def test_the_costs_that_matter_for_the_shape_are_named(costs, line):
    assert costs_line(FifoFleet(1, costs=costs)) == line
