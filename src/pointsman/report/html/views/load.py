"""What do goodput and tails do as load grows?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pointsman.report.html.charts.chart import Axis, Plot, Point, Series
from pointsman.report.html.result import AtLoad, Figure, Run
from pointsman.report.html.views.view import View

QUESTION = "What do goodput and tails do as load grows?"
_CHARTS = (
    ("goodput_fraction", "goodput", Axis("requests that kept all objectives", percent=True)),
    ("p99_ttft_ms", "P99 TTFT", Axis("P99 TTFT, ms", log=True)),
    ("p99_tpot_ms", "P99 TPOT", Axis("P99 TPOT, ms")),
    ("p99_e2e_ms", "P99 E2E", Axis("P99 E2E, ms", log=True)),
)
_FIGURES = tuple(name for name, _, _ in _CHARTS)
_OF_RESULTS = "A point is one result; a band is its interval, where the result has one."
_OF_SEARCH = (
    "A point is one simulation of the search for the load held; of one simulation no interval is"
    " known."
)
_RATE, _TIMES = "offered requests/s", "load, times the trace's rate"


@dataclass(frozen=True, slots=True)
class _Curve:
    """One policy over its loads; ``place`` is the traffic and fleet that they are of."""

    name: str
    place: str
    points: tuple[AtLoad, ...]


def load(runs: tuple[Run, ...]) -> View | None:
    """Against the loads of a search, else against the rates of several results."""
    searched = [_Curve(run.name, run.cell, run.loads) for run in runs if len(run.loads) > 1]
    if searched:
        return _view(searched, _TIMES, _OF_SEARCH)
    several = _over_results(runs)
    return _view(several, _RATE, _OF_RESULTS) if several else None


def _over_results(runs: Sequence[Run]) -> list[_Curve]:
    """The same policy on the same fleet in results of different rates."""
    curves = []
    for kind in dict.fromkeys((run.label, run.setting) for run in runs):
        at = [
            AtLoad(run.offered_rps, _figures(run))
            for run in runs
            if (run.label, run.setting) == kind and run.offered_rps
        ]
        if len({each.load for each in at}) > 1:
            policy, setting = kind
            curves.append(_Curve(policy, setting, tuple(sorted(at, key=lambda each: each.load))))
    are_of_one = len({curve.place for curve in curves}) == 1
    return [replace(curve, place="") for curve in curves] if are_of_one else curves


def _figures(run: Run) -> dict[str, Figure]:
    found = {name: run.figure(name) for name in _FIGURES}
    return {name: figure for name, figure in found.items() if figure is not None}


def _view(curves: Sequence[_Curve], x_title: str, remark: str) -> View:
    names = list(dict.fromkeys(curve.name for curve in curves))
    charts = []
    for place in dict.fromkeys(curve.place for curve in curves):
        there = [curve for curve in curves if curve.place == place]
        for figure, title, axis in _CHARTS:
            series = [
                Series(curve.name, names.index(curve.name), points)
                for curve in there
                if (points := _points(curve, figure))
            ]
            if series:
                whole = f"{title}: {place}" if place else title
                charts.append(Plot(whole, Axis(x_title, log=True), axis, tuple(series)))
    return View(QUESTION, tuple(charts), (remark,))


def _points(curve: _Curve, name: str) -> tuple[Point, ...]:
    known = [(at.load, at.figures[name]) for at in curve.points if name in at.figures]
    return tuple(Point(load, each.value, each.low, each.high) for load, each in known)
