"""The table of a prediction: what its words claim."""

from __future__ import annotations

import pytest

from pointsman.bench.prediction.ranking import Agreement
from pointsman.bench.prediction.report import FigureError, GroupReport, PredictionReport
from pointsman.report.prediction import prediction_text


@pytest.mark.parametrize(
    ("low", "high", "is_inside", "word"),
    [
        (50.0, 70.0, True, "yes"),
        (61.0, 70.0, False, "no"),
        (-3297.0, 5493.0, True, "too wide"),
        (None, None, None, "-"),
    ],
)
def test_an_interval_below_nothing_is_too_wide_for_anything_to_be_outside(
    low, high, is_inside, word
):
    figure = FigureError(
        name="ttft_ms",
        unit="ms",
        predicted=60.0,
        measured=66.0,
        low=low,
        high=high,
        error=-0.1,
        is_inside=is_inside,
        reason=None,
    )
    nothing = Agreement(right=0, counted=0, overlapping=0, without_interval=0, wrong=())
    group = GroupReport(
        group="g1",
        policy=None,
        is_fitted=False,
        figures=(figure,),
        stages=(),
        predicted_cached_fraction=None,
        measured_cached_fraction=None,
        sentences=(),
    )
    report = PredictionReport(
        schema="pointsman.prediction_report/1",
        tolerance=0.1,
        groups=(group,),
        ranking={},
        in_order=nothing,
        not_measured={},
    )
    (line,) = [each for each in prediction_text(report, "table").splitlines() if "ttft" in each]
    assert line.endswith(f"  {word}")
