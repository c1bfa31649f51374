"""Which views a page has: those whose data its results have; the others are named."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pointsman.report.html.result import Prediction, Run
from pointsman.report.html.views import caching
from pointsman.report.html.views.differences import differences
from pointsman.report.html.views.distributions import distributions
from pointsman.report.html.views.efficiency import efficiency
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
from pointsman.report.html.views.view import View

Runs = tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """A view of runs, and what is said where it cannot be drawn."""

    draw: Callable[[Runs], View | None]
    absent: str


@dataclass(frozen=True, slots=True)
class Pictures:
    """What is shown and what is not."""

    views: tuple[View, ...]
    absent: tuple[str, ...]


PICTURES = (
    Picture(distributions, "Distributions of latencies: no quantiles, or rows of requests."),
    Picture(differences, "Differences: nothing is compared, or too few requests for an interval."),
    Picture(measured, "Measured figures: nothing was measured."),
    Picture(stages, "Stages of a request: their means are not told."),
    Picture(held, "Load held: no search over loads."),
    Picture(load, "Goodput and tails against load: one load; give results of several rates."),
    Picture(efficiency, "Throughput per GPU against latency: fewer than two points with GPUs."),
    Picture(
        over_time,
        "Replicas over time: not sampled; `compare --fleet` with --over-time or --report does.",
    ),
    Picture(skew, "Work of each replica: not told."),
    Picture(caching.hits, "Hits against tails: fewer than two runs whose hits are known."),
    Picture(caching.slack, "Slack: give one policy with several slacks."),
    Picture(reasons, "Reasons over time: no policy with several reasons, or not recorded."),
    Picture(
        locality,
        "Locality against its bound: no such policy, or prefill and decode are apart.",
    ),
    Picture(replayed, "Choices that differ in a replay: no replay, or none differs."),
    Picture(handoff, "Hand-off: prefill and decode are not apart, or nobody told."),
)
_NO_PREDICTION = (
    "Prediction against measurement: give a calibration, or a simulated result and a measured one"
    " of the same policy."
)


def pictures_of(runs: Runs, predictions: tuple[Prediction, ...]) -> Pictures:
    """Every view that can be drawn, in the order of PICTURES; the prediction is the last."""
    drawn = [(picture.absent, picture.draw(runs)) for picture in PICTURES]
    drawn.append((_NO_PREDICTION, prediction(predictions)))
    return Pictures(
        views=tuple(view for _, view in drawn if view is not None),
        absent=tuple(absent for absent, view in drawn if view is None),
    )
