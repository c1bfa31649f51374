"""From the requests of each repeat to a group's metrics, each with its source, noise and count.

The figure of a group is of all its repeats' requests together: means weigh each request alike,
percentiles are by nearest rank of all of them, throughput is all tokens over all windows. Each
repeat's own figure says how noisy that is (``verdict/sections.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pointsman.core.errors import InputError
from pointsman.core.percentiles import nearest_rank
from pointsman.evidence.envelope import Bounds, Detail
from pointsman.evidence.metrics import DEFINITIONS, METRIC_NAMES, NO_METRICS, MetricName, Metrics
from pointsman.metrics.latency import Answers, spread_of
from pointsman.metrics.rates import window_ms
from pointsman.verdict.sections import Sections, section_interval
from pointsman.workload.workload import Floats


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """One repeat: its requests, and the most memory that the engines held (None: not measured)."""

    answers: Answers
    peak_memory_mb: float | None = None


@dataclass(frozen=True, slots=True)
class Total:
    """What was added up over ``count`` requests that nobody tells apart, such as a histogram's."""

    amount: float = 0.0
    count: int = 0

    @property
    def mean(self) -> float | None:
        """Of a request; None of none."""
        return self.amount / self.count if self.count else None


@dataclass(frozen=True, slots=True)
class Told:
    """Where a metric comes from, or why there is none.

    ``totals``: of each repeat, where no column has it; then nothing is taken from the columns.
    """

    source: str | None = None
    reason: str | None = None
    totals: tuple[Total, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """A group's metrics, what stands beside each, and each repeat's own metrics."""

    metrics: Metrics
    details: dict[MetricName, Detail]
    repeats: tuple[Metrics, ...]


_CLIENT = "the client: stamps at the socket, from intended arrival"
CLIENT_SOURCES: dict[MetricName, Told] = {
    "ttft_ms": Told(source=_CLIENT),
    "tpot_ms": Told(source="the client: stamps at the socket; output tokens by the engine's usage"),
    "e2e_ms": Told(source=_CLIENT),
    "throughput_tokens_per_s": Told(source="the client; output tokens by the engine's usage"),
    "p95_ms": Told(source=_CLIENT),
    "p99_ms": Told(source=_CLIENT),
    "success_rate": Told(source="the client: one verdict a request, none is retried in silence"),
}
NO_REQUEST = "no finished request has it"

_Figure = Callable[[Sequence[MeasuredRun]], float | None]


def group_figures(
    runs: Sequence[MeasuredRun], told: Mapping[MetricName, Told], level: float = 0.95
) -> GroupFigures:
    """The figures of one or more repeats.

    ``told`` adds to CLIENT_SOURCES where queue wait, hand-off and memory come from, or why they are
    absent. A metric that is told to be absent is, whatever the columns hold. Raises InputError for
    no repeat, for a metric of which neither source nor reason is told, and for totals that are not
    one a repeat, or of a metric that is no mean.
    """
    if not runs:
        raise InputError("figures of a group: no repeat; expected at least one")
    known = {**CLIENT_SOURCES, **told}
    values: dict[MetricName, list[float | None]] = {}
    details: dict[MetricName, Detail] = {}
    for name in METRIC_NAMES:
        each = known.get(name, Told())
        if each.totals:
            values[name], count = _of_totals(name, each.totals, len(runs))
        else:
            figure = _absent if each.reason is not None else _FIGURES[name]
            values[name] = [figure(runs), *(figure([run]) for run in runs)]
            count = sum(_count(name, run.answers) for run in runs)
        details[name] = _detail(name, each, values[name], count, level)
    columns = [
        Metrics(**{name: values[name][k] for name in METRIC_NAMES}) for k in range(len(runs) + 1)
    ]
    return GroupFigures(columns[0], details, tuple(columns[1:]))


def no_figures(reason: str) -> GroupFigures:
    """Of a group that failed before anything was measured: every metric null with that reason."""
    details = {
        name: Detail(
            unit=DEFINITIONS[name].unit,
            definition=DEFINITIONS[name].text,
            source=None,
            reason=reason,
        )
        for name in METRIC_NAMES
    }
    return GroupFigures(NO_METRICS, details, ())


def _detail(
    name: MetricName, told: Told, values: Sequence[float | None], count: int, level: float
) -> Detail:
    overall, *repeats = values
    source, reason = told.source, told.reason
    if overall is None:
        source, reason = None, reason or NO_REQUEST
    elif source is None:
        raise InputError(
            f"figures of a group: {name} has no source; expected where it comes from, or the reason"
            " why there is none"
        )
    definition = DEFINITIONS[name]
    return Detail(
        unit=definition.unit,
        definition=definition.text,
        source=source,
        reason=reason,
        count=None if overall is None else count,
        repeats=tuple(repeats),
        interval=None if overall is None else bounds_of(overall, repeats, level),
    )


def bounds_of(overall: float, repeats: Sequence[float | None], level: float) -> Bounds | None:
    """The interval of a figure; None with fewer than two repeats, or where one has no value."""
    values = [value for value in repeats if value is not None]
    if len(values) < 2 or len(values) < len(repeats):
        return None
    interval = section_interval(Sections(overall, tuple(values)), level)
    return Bounds(low=interval.low, high=interval.high, level=level, n=interval.n)


def _of_totals(
    name: MetricName, totals: Sequence[Total], repeats: int
) -> tuple[list[float | None], int]:
    """The mean of all and those of the repeats, and how many requests they rest on."""
    where = "figures of a group"
    if name not in _COLUMNS:
        raise InputError(f"{where}: {name} has totals; expected them of a mean of requests only")
    if len(totals) != repeats:
        raise InputError(f"{where}: {name} has {len(totals)} totals; expected {repeats}, one each")
    whole = Total(math.fsum(each.amount for each in totals), sum(each.count for each in totals))
    return [whole.mean, *(each.mean for each in totals)], whole.count


def _absent(_: Sequence[MeasuredRun]) -> None:
    return None


def _mean_of(column: Callable[[Answers], Floats]) -> _Figure:
    def mean(runs: Sequence[MeasuredRun]) -> float | None:
        return spread_of(_together(runs, column)).mean

    return mean


def _percentile_of(quantile: float) -> _Figure:
    def percentile(runs: Sequence[MeasuredRun]) -> float | None:
        values = _together(runs, lambda answers: answers.e2e_ms)
        ordered = np.sort(values[~np.isnan(values)])
        return nearest_rank(ordered, quantile) if ordered.size else None

    return percentile


def _together(runs: Sequence[MeasuredRun], column: Callable[[Answers], Floats]) -> Floats:
    return np.concatenate([column(run.answers) for run in runs])


def _throughput(runs: Sequence[MeasuredRun]) -> float | None:
    windows = [window_ms(run.answers.arrival_ms, run.answers.finish_ms) for run in runs]
    tokens = sum(int(r.answers.output_tokens[r.answers.finished].sum(dtype=np.int64)) for r in runs)
    return tokens * 1000.0 / math.fsum(windows) if math.fsum(windows) > 0.0 else None


def _success(runs: Sequence[MeasuredRun]) -> float | None:
    offered = sum(len(run.answers) for run in runs)
    return sum(int(run.answers.finished.sum()) for run in runs) / offered if offered else None


def _peak_memory(runs: Sequence[MeasuredRun]) -> float | None:
    peaks = [run.peak_memory_mb for run in runs if run.peak_memory_mb is not None]
    return max(peaks) if len(peaks) == len(runs) else None


def _handoff_ms(answers: Answers) -> Floats:
    return _or_absent(answers, answers.handoff_ms)


def _handoff_bytes(answers: Answers) -> Floats:
    column = answers.handoff_bytes
    return _or_absent(answers, None if column is None else column.astype(np.float64))


def _or_absent(answers: Answers, column: Floats | None) -> Floats:
    return answers.of_finished(np.full(len(answers), np.nan) if column is None else column)


_COLUMNS: dict[MetricName, Callable[[Answers], Floats]] = {
    "ttft_ms": lambda answers: answers.ttft_ms,
    "tpot_ms": lambda answers: answers.tpot_ms,
    "e2e_ms": lambda answers: answers.e2e_ms,
    "queue_wait_ms": lambda answers: answers.queue_wait_ms,
    "kv_handoff_bytes": _handoff_bytes,
    "kv_handoff_ms": _handoff_ms,
}
_FIGURES: dict[MetricName, _Figure] = {
    **{name: _mean_of(column) for name, column in _COLUMNS.items()},
    "throughput_tokens_per_s": _throughput,
    "p95_ms": _percentile_of(0.95),
    "p99_ms": _percentile_of(0.99),
    "peak_memory_mb": _peak_memory,
    "success_rate": _success,
}


def _count(name: MetricName, answers: Answers) -> int:
    """How many requests a figure rests on."""
    if name in _COLUMNS:
        return int(np.count_nonzero(~np.isnan(_COLUMNS[name](answers))))
    if name in ("peak_memory_mb", "success_rate"):
        return len(answers)
    return int(np.count_nonzero(answers.finished))
