"""What do goodput and tails do as load grows?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
_OF_RESULTS = (
    "Against requests/s a point is one result; a band is its interval, where the result has one."
)
_FLEETS = "Curves of different fleets end in the name of the first result on each."
_SAME_RATE = "Not drawn, for another result of the same policy, fleet and rate is: {}."
_OF_SEARCH = (
    "Against multiples of a trace's rate a point is one simulation of the search for the load held;"
    " no interval was computed of it."
)
_RATE, _TIMES = "offered requests/s", "load, times the trace's rate"


@dataclass(frozen=True, slots=True)
class _Curve:
    """One policy over its loads; ``place`` is the traffic and fleet of a search, ``fleet`` that of
    results of several rates."""

    name: str
    place: str
    points: tuple[AtLoad, ...]
    fleet: str = ""


def load(runs: tuple[Run, ...]) -> View | None:
    """Against the loads of searches, and against the rates of several results."""
    searched = [_Curve(run.name, run.cell, run.loads) for run in runs if len(run.loads) > 1]
    several, left_out = _over_results(runs)
    charts = (*_charts(searched, _TIMES), *_charts(several, _RATE))
    remarks = [
        *([_OF_SEARCH] if searched else []),
        *([_OF_RESULTS] if several else []),
        *([_FLEETS] if len({curve.fleet for curve in several}) > 1 else []),
        *([_SAME_RATE.format(", ".join(left_out))] if left_out else []),
    ]
    return View(QUESTION, charts, tuple(remarks)) if charts else None


def _over_results(runs: Sequence[Run]) -> tuple[list[_Curve], list[str]]:
    """The same policy on the same fleet in results of different rates, and the runs at a rate that
    another one has already."""
    alike: dict[tuple[str, str, str], dict[float, Run]] = {}
    for run in runs:
        if run.offered_rps:
            alike.setdefault(_kind(run), {}).setdefault(run.offered_rps, run)
    curves = {kind: at for kind, at in alike.items() if len(at) > 1}
    several = len({fleet for _, _, fleet in curves}) > 1
    drawn = [
        _Curve(
            f"{_first(at).label} ({_first(at).result})" if several else _first(at).label,
            "",
            tuple(AtLoad(rate, _figures(run)) for rate, run in sorted(at.items())),
            fleet,
        )
        for (_, _, fleet), at in curves.items()
    ]
    rated = [run for run in runs if run.offered_rps and _kind(run) in curves]
    again = [run for run in rated if curves[_kind(run)][run.offered_rps or 0.0] is not run]
    return drawn, [run.name for run in again]


def _first(at: dict[float, Run]) -> Run:
    return next(iter(at.values()))


def _kind(run: Run) -> tuple[str, str, str]:
    """Policy, parameters and fleet."""
    return run.policy, repr(sorted(run.parameters.items())), run.fleet


def _figures(run: Run) -> dict[str, Figure]:
    found = {name: run.figure(name) for name in _FIGURES}
    return {name: figure for name, figure in found.items() if figure is not None}


def _charts(curves: Sequence[_Curve], x_title: str) -> list[Plot]:
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
    return charts


def _points(curve: _Curve, name: str) -> tuple[Point, ...]:
    known = [(at.load, at.figures[name]) for at in curve.points if name in at.figures]
    return tuple(Point(load, each.value, each.low, each.high) for load, each in known)
