"""Was the prediction right, and if not, which stage is off?"""

from __future__ import annotations

from collections.abc import Sequence

from pointsman.report.html.charts.chart import (
    BAR,
    LINE,
    POINTS,
    Axis,
    Chart,
    Plot,
    Point,
    Rows,
    Series,
)
from pointsman.report.html.charts.marks import REFERENCE
from pointsman.report.html.result import Prediction
from pointsman.report.html.views.view import View

QUESTION = "Was the prediction right, and if not, which stage is off?"
_REMARKS = ("On the diagonal a prediction is exact. Errors are (predicted - measured) / measured.",)


def prediction(predictions: tuple[Prediction, ...]) -> View | None:
    """Predicted against measured times, and the error of each figure of each stage."""
    if not predictions:
        return None
    timed = [each for each in predictions if each.is_time]
    charts: list[Chart] = [_against(timed)] if timed else []
    for group in dict.fromkeys(each.group for each in predictions):
        charts_of = [each for each in predictions if each.group == group]
        if any(each.error_fraction is not None for each in charts_of):
            charts.append(_errors(group, charts_of))
    told = dict.fromkeys(each.remark for each in predictions if each.remark)
    return View(QUESTION, tuple(charts), (*_REMARKS, *told))


def _against(timed: Sequence[Prediction]) -> Plot:
    stages = list(dict.fromkeys(each.subject for each in timed))
    values = [value for each in timed for value in (each.measured.value, each.predicted)]
    low = min((value for value in values if value > 0.0), default=0.0)
    ends = (low, max(values))
    return Plot(
        title="predicted against measured",
        x=Axis("measured, ms", log=True, low=low, high=ends[1]),
        y=Axis("predicted, ms", log=True, low=low, high=ends[1]),
        series=(
            Series("exact", REFERENCE, tuple(Point(end, end) for end in ends), LINE),
            *(
                Series(stage, style, tuple(map(_point, _of_stage(timed, stage))), POINTS)
                for style, stage in enumerate(stages)
            ),
        ),
    )


def _of_stage(timed: Sequence[Prediction], stage: str) -> list[Prediction]:
    return [each for each in timed if each.subject == stage]


def _point(each: Prediction) -> Point:
    return Point(each.measured.value, each.predicted, label=f"{each.group}: {each.figure}")


def _of(predictions: Sequence[Prediction]) -> str:
    kinds = dict.fromkeys("figure" if each.stage is None else "stage" for each in predictions)
    return " and ".join(kinds)


def _errors(group: str, predictions: Sequence[Prediction]) -> Rows:
    known = [(each, each.error_fraction) for each in predictions]
    shown = [(each, error) for each, error in known if error is not None]
    return Rows(
        title=f"{group}: error by {_of(predictions)}",
        x=Axis("(predicted - measured) / measured", percent=True),
        names=tuple(f"{each.subject}: {each.figure}" for each, _ in shown),
        series=(
            Series(
                "error",
                0,
                tuple(Point(error, float(place)) for place, (_, error) in enumerate(shown)),
                BAR,
            ),
        ),
    )
