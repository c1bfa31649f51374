"""From runs to charts, each view by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pointsman.comparison.over_time import OverTime, ReplicaOverTime
from pointsman.metrics.distribution import QUANTILE_LEVELS
from pointsman.metrics.latency import Spread
from pointsman.metrics.reasons import ReasonsOverTime
from pointsman.report.html.charts.chart import Point
from pointsman.report.html.charts.drawing import draw_rows
from pointsman.report.html.pictures import PICTURES, pictures_of
from pointsman.report.html.result import (
    MEASURED,
    SIMULATED,
    AtLoad,
    Audit,
    Difference,
    Figure,
    HeldRate,
    Latency,
    Prediction,
    Run,
    Share,
)
from pointsman.report.html.views.caching import hits, slack
from pointsman.report.html.views.differences import differences
from pointsman.report.html.views.distributions import distributions
from pointsman.report.html.views.efficiency import efficiency, pareto_front
from pointsman.report.html.views.handoff import handoff
from pointsman.report.html.views.held import held
from pointsman.report.html.views.load import load
from pointsman.report.html.views.locality import locality
from pointsman.report.html.views.measured import measured
from pointsman.report.html.views.over_time import over_time
from pointsman.report.html.views.prediction import prediction
from pointsman.report.html.views.reasons import reasons
from pointsman.report.html.views.replayed import replayed
from pointsman.report.html.views.skew import skew
from pointsman.report.html.views.stages import stages

SPREAD = Spread(count=4, mean=2.5, p50=2.0, p90=4.0, p95=4.0, p99=4.0, worst=4.0)
RISING = tuple(float(k) for k in range(len(QUANTILE_LEVELS)))


def run(name="mine", **facts) -> Run:
    return Run(**{"name": name, "label": name, "origin": SIMULATED, "policy": name, **facts})


def figures(**values):
    return {name: Figure(value) for name, value in values.items()}


def places(series):
    return [(point.x, point.y) for point in series.points]


def test_a_distribution_has_the_share_of_requests_at_each_value():
    view = distributions((run(latencies={"ttft_ms": Latency(SPREAD, RISING)}),))
    (chart,) = view.charts
    assert chart.title == "TTFT"
    assert places(chart.series[0])[50] == (50.0, 0.5)
    assert chart.table.rows[-1] == (1.0, 109.0)


def test_a_latency_without_quantiles_has_no_distribution():
    assert distributions((run(latencies={"ttft_ms": Latency(SPREAD)}),)) is None


SHARES = (Share("0", "all", 30, 100.0), Share("1", "all", 10, 100.0))


def test_skew_is_shown_by_requests_and_by_busy_time_over_the_mean():
    view = skew((run(shares=SHARES, skews={"all": {"requests": 1.0, "busy": 0.0}}),))
    by_requests, by_busy = view.charts
    assert [point.x for point in by_requests.series[0].points] == [1.5, 0.5]
    assert [point.x for point in by_busy.series[0].points] == [1.0, 1.0]
    assert by_requests.names == ("mine: skew 1",)


def test_pools_are_rows_of_their_own_and_a_lone_replica_has_none():
    shares = (*(replace(each, pool="prefill") for each in SHARES), Share("2", "decode", 40))
    (chart,) = skew((run(shares=shares),)).charts[:1]
    assert chart.names == ("mine, prefill",)


def test_busy_time_that_one_replica_does_not_tell_is_not_compared():
    view = skew(
        (
            run(
                shares=(SHARES[0], Share("1", "all", 10)),
            ),
        )
    )
    assert [chart.title for chart in view.charts] == ["by requests"]


def test_the_front_has_what_nothing_beats_in_both():
    # From the left: 10 ms at 5, beaten at 12 ms by less, 20 ms at 8, 20 ms at 7 beaten, 30 at 8.
    points = [Point(*place) for place in ((20, 7), (30, 8), (12, 4), (10, 5), (20, 8))]
    assert [(point.x, point.y) for point in pareto_front(points)] == [(10, 5), (20, 8)]


def test_throughput_stands_against_each_tail_with_the_front():
    def placed(name, tail, rate):
        latency = Latency(replace(SPREAD, p95=tail))
        found = figures(output_tokens_per_s_per_gpu=rate)
        return run(name, latencies={"e2e_ms": latency}, figures=found)

    (chart,) = efficiency((placed("a", 10.0, 5.0), placed("b", 20.0, 4.0))).charts
    front, first, second = chart.series
    assert places(front) == places(first) == [(10.0, 5.0)]
    assert places(second) == [(20.0, 4.0)]


def test_shapes_stand_where_they_hold_their_highest_rate():
    at = AtLoad(2.0, figures(p95_e2e_ms=7.0, output_tokens_per_s_per_gpu=90.0))
    shapes = tuple(run(name, at_held=at, group="replicas") for name in "ab")
    (chart,) = efficiency(shapes).charts
    assert chart.series[1].name == "replicas"
    assert places(chart.series[1]) == [(7.0, 90.0)] * 2


def test_one_point_has_no_front():
    assert efficiency((run(figures=figures(output_tokens_per_s_per_gpu=1.0)),)) is None


def test_load_is_the_rate_of_several_results():
    def at(rate, share):
        return run(offered_rps=rate, figures={"goodput_fraction": Figure(share, share - 0.1, 1.0)})

    (chart,) = load((at(4.0, 0.7), at(2.0, 0.9))).charts
    (series,) = chart.series
    assert places(series) == [(2.0, 0.9), (4.0, 0.7)]
    assert (series.points[1].low, series.points[1].high) == pytest.approx((0.6, 1.0))


def at_rate(rate, share, **facts):
    return run(offered_rps=rate, figures=figures(goodput_fraction=share), **facts)


def test_results_of_another_fleet_are_no_points_of_the_same_curve():
    small = [at_rate(rate, share, fleet="4", result="a") for rate, share in ((2, 0.9), (4, 0.7))]
    large = [at_rate(rate, share, fleet="8", result="b") for rate, share in ((2, 1.0), (4, 0.9))]
    view = load((*small, *large))
    (chart,) = view.charts
    assert [series.name for series in chart.series] == ["mine (a)", "mine (b)"]
    assert places(chart.series[1]) == [(2, 1.0), (4, 0.9)]
    assert load((small[0], large[1])) is None


def test_other_parameters_are_another_policy():
    slow, fast = ({"slack_ms": each} for each in (5.0, 50.0))
    assert load((at_rate(2.0, 0.9, parameters=slow), at_rate(4.0, 0.7, parameters=fast))) is None


def test_a_second_result_of_one_rate_is_named_and_not_drawn():
    view = load(
        (at_rate(2.0, 0.9), at_rate(4.0, 0.7), at_rate(2.0, 0.1, name="again", policy="mine"))
    )
    assert places(view.charts[0].series[0]) == [(2.0, 0.9), (4.0, 0.7)]
    assert view.remarks[-1].endswith("is: again.")


def test_a_search_hides_no_other_results():
    tried = (AtLoad(1.0, figures(goodput_fraction=1.0)), AtLoad(2.0, figures(goodput_fraction=0.5)))
    runs = (run("s", cell="long on 4", loads=tried), at_rate(2.0, 0.9), at_rate(4.0, 0.7))
    assert [chart.title for chart in load(runs).charts] == ["goodput: long on 4", "goodput"]


def test_load_is_that_of_a_search_where_there_was_one():
    tried = (AtLoad(1.0, figures(p99_ttft_ms=5.0)), AtLoad(2.0, figures(p99_ttft_ms=50.0)))
    (chart,) = load((run(cell="long on 4", loads=tried),)).charts
    assert chart.title == "P99 TTFT: long on 4"
    assert places(chart.series[0]) == [(1.0, 5.0), (2.0, 50.0)]


def test_one_load_is_no_curve():
    assert load((run(offered_rps=2.0, figures=figures(goodput_fraction=1.0)),)) is None


def test_the_load_held_reaches_to_the_one_that_was_not_most_first():
    few, many = HeldRate(1.0, 1.1), HeldRate(2.0, None)
    (chart,) = held((run("few", held=few), run("many", held=many))).charts
    assert chart.names == ("many", "few")
    first, second = chart.series[0].points
    assert (first.x, first.label) == (2.0, "or more")
    assert (second.low, second.high) == (1.0, 1.1)


def test_loads_held_of_different_traffic_are_not_ranked_against_each_other():
    """Each is a multiple of its own trace's rate. What holds nothing has its row."""
    plans = [
        run("a", held=HeldRate(2.0, 2.1), workload="x", result="one.json"),
        run("b", held=HeldRate(3.0, 3.1), workload="y", result="two.json"),
        run("c", held=HeldRate(0.0, 0.1), workload="x", result="one.json"),
    ]
    charts = held(tuple(plans)).charts
    assert [chart.title for chart in charts] == ["load held, one.json", "load held, two.json"]
    assert [chart.names for chart in charts] == [("a", "c"), ("b",)]


def sampled(replicas):
    each = [ReplicaOverTime((k, k), (0, 2 * k), (0.0, 0.5)) for k in range(replicas)]
    return OverTime(2000.0, tuple(each))


def test_every_replica_has_a_line_over_time():
    view = over_time((run(over_time=sampled(3)),))
    assert [chart.title for chart in view.charts] == [
        *("mine: waiting", "mine: running", "mine: KV use")
    ]
    assert places(view.charts[0].series[2]) == [(0.0, 0.0), (2.0, 4.0)]


def test_too_many_replicas_are_their_least_middle_and_most():
    view = over_time((run(over_time=sampled(33)),))
    (series,) = view.charts[0].series
    last = series.points[1]
    assert (last.low, last.y, last.high) == (0.0, 32.0, 64.0)  # 2k of k = 0..32
    assert "least to the most" in view.remarks[0]


def test_runs_with_few_replicas_each_have_a_line_for_each_up_to_48_together():
    def lines(*replicas):
        view = over_time(tuple(run(str(k), over_time=sampled(k)) for k in replicas))
        return [len(chart.series) for chart in view.charts[::3]]

    assert lines(32, 16) == [32, 16]
    assert lines(32, 17) == [1, 1]


def test_hits_stand_against_tails_where_several_runs_tell_them():
    cached = figures(cached_token_fraction=0.25)
    first = run("a", figures=cached, latencies={"ttft_ms": Latency(SPREAD)})
    assert hits((first,)) is None
    (chart,) = hits((first, replace(first, name="b"))).charts
    assert places(chart.series[1]) == [(0.25, 4.0)]


def test_slack_is_a_curve_of_one_policy_in_order():
    runs = (with_slack(50.0, 0.4), with_slack(5.0, 0.2), run("other"))
    (chart,) = slack(runs).charts
    assert places(chart.series[0]) == [(5.0, 0.2), (50.0, 0.4)]


def with_slack(slack_ms, share, **facts):
    cached = figures(cached_token_fraction=share)
    return run("p", parameters={"slack_ms": slack_ms}, figures=cached, **facts)


@pytest.mark.parametrize("what", ["workload", "fleet"])
def test_slacks_on_other_requests_or_another_fleet_are_a_curve_of_their_own(what):
    """The same slack on both: neither takes the other's place."""
    runs = [
        with_slack(slack_ms, share, result=name, **{what: name})
        for name, shares in (("a", (0.2, 0.4)), ("b", (0.3, 0.5)))
        for slack_ms, share in zip((5.0, 50.0), shares, strict=True)
    ]
    (chart,) = slack(tuple(runs)).charts
    assert {series.name: places(series) for series in chart.series} == {
        "p (a)": [(5.0, 0.2), (50.0, 0.4)],
        "p (b)": [(5.0, 0.3), (50.0, 0.5)],
    }


COUNTS = ReasonsOverTime(5000.0, {"home": (3, 1), "new": (0, 2)})


def test_reasons_are_counted_over_time():
    runs = (run(reasons={"home": 4, "new": 2}, reasons_over_time=COUNTS),)
    (chart,) = reasons(runs).charts
    assert chart.y.title == "choices in 5 s"
    assert places(chart.series[0]) == [(0.0, 3.0), (5.0, 1.0)]


def test_the_last_step_of_counts_is_as_wide_as_the_others():
    runs = (run(reasons={"home": 4, "new": 2}, reasons_over_time=COUNTS),)
    assert [series.ends_at for series in reasons(runs).charts[0].series] == [10.0, 10.0]


def test_a_policy_with_one_reason_has_no_chart_of_reasons():
    assert reasons((run(reasons={"turn": 6}, reasons_over_time=COUNTS),)) is None


def test_choices_that_differ_in_a_replay_are_counted_over_time():
    assert places(replayed((run(differing=COUNTS),)).charts[0].series[1])[1] == (5.0, 2.0)


def test_choices_for_locality_stand_against_their_bound():
    audit = Audit(200, 5.0, SPREAD, replace(SPREAD, worst=9.0), 3, over_bound_fraction=0.015)
    (chart,) = locality((run(audit=audit),)).charts
    assert chart.title == "mine: 3 of 200 (1.5%) beyond the bound"
    assert chart.references[0].value == 5.0
    assert [point.x for point in chart.series[1].points] == [2.0, 4.0, 4.0, 9.0]


def test_a_bound_of_0_is_drawn_where_extra_waits_of_0_stand():
    audit = Audit(200, 0.0, SPREAD, replace(SPREAD, worst=9.0), 3, over_bound_fraction=0.015)
    (chart,) = locality((run(audit=audit),)).charts
    svg = draw_rows(chart).svg
    assert '<line class="reference" x1="10" ' in svg  # rows go from 10 to 346 across
    assert "bound 0 ms</text>" in svg


def test_differences_stand_against_none_and_ratios_against_one():
    def by(figure):
        return Difference(figure, Figure(0.1, -0.1, 0.3), "not told apart", "base")

    view = differences((run(differences=(by("goodput_fraction"), by("e2e_ratio"))),))
    shares, ratio = view.charts
    assert (shares.references[0].value, ratio.references[0].value) == (0.0, 1.0)
    assert shares.names == ("mine: not told apart",)
    assert (shares.series[0].points[0].low, shares.series[0].points[0].high) == (-0.1, 0.3)


def test_differences_to_several_baselines_have_a_chart_each():
    def to(base):
        return run(base, differences=(Difference("p95_ttft_ms", Figure(1.0), "worse", base),))

    charts = differences((to("a"), to("b"))).charts
    assert [chart.title for chart in charts] == [
        "P95 TTFT less that of a",
        "P95 TTFT less that of b",
    ]


def test_differences_of_shares_are_points_and_no_percentages():
    by = Difference("goodput_fraction", Figure(0.1), "better", "base")
    (chart,) = differences((run(differences=(by,)),)).charts
    assert chart.x.title == "difference of goodput, points"


def test_what_handing_over_takes_is_shown_with_its_bytes():
    runs = (run(latencies={"handoff_ms": Latency(SPREAD)}, figures=figures(handoff_bytes=10.0)),)
    times, sizes = handoff(runs).charts
    assert times.names == ("mean", "P50", "P95", "P99", "worst")
    assert places(times.series[0]) == [(2.5, 0.0), (2.0, 1.0), (4.0, 2.0), (4.0, 3.0), (4.0, 4.0)]
    assert sizes.series[0].points[0].x == 10.0


def test_hand_offs_of_two_runs_stand_beside_one_another_in_the_rows_of_figures():
    handed = {"handoff_ms": Latency(SPREAD)}
    runs = tuple(run(name, latencies=handed, style=k) for k, name in enumerate("ab"))
    (chart,) = handoff(runs).charts
    assert [(series.name, series.style) for series in chart.series] == [("a", 0), ("b", 1)]


def test_stages_are_parts_of_the_mean_latency_of_their_run():
    """1 of 8 ms waiting, 5 decoding, 2 that nobody tells; stages without an E2E are the whole."""
    e2e = {"e2e_ms": Latency(Spread(count=4, mean=8.0))}
    runs = (
        run("a", stages={"queue_wait": 1.0, "decode": 5.0}, latencies=e2e),
        run("b", stages={"decode": 7.0}),
    )
    (chart,) = stages(runs).charts
    assert chart.names == ("a: 8 ms", "b: 7 ms")
    assert [series.name for series in chart.series] == ["queue wait", "decode"]
    assert places(chart.series[0]) == [(0.125, 0.0)]
    assert places(chart.series[1]) == [(0.625, 0.0), (1.0, 1.0)]
    assert chart.table.headings == ("", "queue wait", "decode", "E2E")
    assert chart.table.rows == (("a", 1.0, 5.0, 8.0), ("b", None, 7.0, 7.0))


def test_only_measured_groups_have_measured_figures():
    group = run("g", figures={"ttft_ms": Figure(5.0, 4.0, 6.0)})
    assert measured((group,)) is None
    (chart,) = measured((replace(group, origin=MEASURED),)).charts
    assert chart.series[0].points[0].high == 6.0


def test_the_line_of_a_wide_interval_ends_at_0_and_its_table_has_it_whole():
    group = run("g", origin=MEASURED, figures={"ttft_ms": Figure(5.0, -4.0, 14.0)})
    (chart,) = measured((group,)).charts
    (point,) = chart.series[0].points
    assert (point.low, point.high) == (0.0, 14.0)
    assert chart.table.rows == (("g", 5.0, -4.0, 14.0),)


def test_a_prediction_is_off_by_a_share_of_what_was_measured():
    each = Prediction("g1", "time", "mean", 12.0, Figure(10.0), stage="decode")
    plot, rows = prediction((each,)).charts
    assert places(plot.series[1]) == [(10.0, 12.0)]
    assert rows.names == ("decode stage: mean",)
    assert rows.series[0].points[0].x == pytest.approx(0.2)


def test_however_many_stages_were_predicted_none_looks_like_the_diagonal():
    each = [Prediction("g1", f"stage {k}", "mean", 12.0, Figure(10.0)) for k in range(11)]
    exact, *others = prediction(tuple(each)).charts[0].series
    assert exact.style not in {series.style for series in others}


def test_however_many_groups_are_compared_none_looks_like_the_front():
    at = AtLoad(2.0, figures(p95_e2e_ms=7.0, output_tokens_per_s_per_gpu=90.0))
    shapes = tuple(run(str(k), at_held=at) for k in range(11))
    front, *others = efficiency(shapes).charts[0].series
    assert front.style not in {series.style for series in others}


def test_errors_are_titled_by_what_they_are_of():
    stage = Prediction("g", "time", "mean", 12.0, Figure(10.0), stage="decode")
    figure = Prediction("g", "TTFT", "p95", 12.0, Figure(10.0))
    told = ((stage,), (figure,), (stage, figure))
    titles = [prediction(each).charts[-1].title for each in told]
    assert titles == ["g: error by stage", "g: error by figure", "g: error by stage and figure"]


def test_an_error_of_nothing_measured_is_not_shown():
    assert Prediction("g", "s", "f", 1.0, Figure(0.0)).error_fraction is None


def test_a_run_without_data_has_no_view_and_every_view_is_named_as_absent():
    pictures = pictures_of((run(),), ())
    assert pictures.views == ()
    assert len(pictures.absent) == len(PICTURES) + 1
