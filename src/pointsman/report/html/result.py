"""What a page shows of a result, whichever command it came from.

Every value is one of a document's. What a result does not have is None or empty here, and the views
that need it are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pointsman.comparison.over_time import OverTime
from pointsman.metrics.latency import Spread
from pointsman.metrics.reasons import ReasonsOverTime

SIMULATED, MEASURED, QUOTED = "simulated", "measured", "quoted"

Cell = str | float | None


@dataclass(frozen=True, slots=True)
class Figure:
    """A value, and where it may lie."""

    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Latency:
    """Of one quantity in ms; ``quantiles`` are at ``metrics.distribution.QUANTILE_LEVELS``."""

    spread: Spread
    quantiles: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True)
class Share:
    """What one replica had to do."""

    name: str
    pool: str
    requests: int
    busy_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Audit:
    """How much longer choices for locality waited than the shortest queue; None: a bound each."""

    choices: int
    bound_ms: float | None
    expected_extra_ms: Spread
    realised_extra_ms: Spread
    over_bound: int
    over_bound_fraction: float


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure of a run less the baseline's."""

    figure: str
    interval: Figure | None
    verdict: str
    against: str


@dataclass(frozen=True, slots=True)
class AtLoad:
    """What was seen at one load, in multiples of the trace's own rate or in requests a second."""

    load: float
    figures: dict[str, Figure]

    def figure(self, name: str) -> Figure | None:
        """A figure by name."""
        return self.figures.get(name)


@dataclass(frozen=True, slots=True)
class HeldRate:
    """The highest load at which the objectives were kept, and the next one, at which not."""

    held: float
    failed: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One thing of several that are compared: a policy, a shape, a measured group.

    ``figures`` by name: ``goodput_fraction``, ``p99_ttft_ms``, ``output_tokens_per_s_per_gpu`` ...
    ``loads`` are of the same run at other loads, ``at_held`` is at the highest that it holds.
    ``label`` is its name in its own result, ``group`` what it is a kind of. ``style`` tells it from
    others on the page. ``workload`` and ``fleet`` are texts that are equal where they are the same.
    """

    name: str
    origin: str
    label: str = ""
    group: str = ""
    policy: str = ""
    result: str = ""
    style: int = 0
    parameters: dict[str, float] = field(default_factory=dict)  # of the policy
    workload: str = ""  # which requests, as far as it is known
    fleet: str = ""  # all that was the same for every policy but the requests
    offered_rps: float | None = None
    latencies: dict[str, Latency] = field(default_factory=dict)
    figures: dict[str, Figure] = field(default_factory=dict)
    stages: dict[str, float] = field(default_factory=dict)  # mean ms, in the order of a request
    shares: tuple[Share, ...] = ()
    skews: dict[str, dict[str, float | None]] = field(default_factory=dict)
    over_time: OverTime | None = None
    reasons: dict[str, int] = field(default_factory=dict)
    reasons_over_time: ReasonsOverTime | None = None
    audit: Audit | None = None
    differences: tuple[Difference, ...] = ()
    held: HeldRate | None = None
    loads: tuple[AtLoad, ...] = ()
    at_held: AtLoad | None = None
    differing: ReasonsOverTime | None = None  # choices that came out otherwise in a replay
    cell: str = ""  # the traffic and fleet that a load is of

    def figure(self, name: str) -> Figure | None:
        """A figure by name; ``p99_ttft_ms`` is the spread's where there is no other."""
        if name in self.figures:
            return self.figures[name]
        which, _, quantity = name.partition("_")
        latency = self.latencies.get(quantity)
        value = None if latency is None else getattr(latency.spread, which, None)
        return None if value is None else Figure(value)


@dataclass(frozen=True, slots=True)
class Prediction:
    """One figure of a group as it was predicted and as it was measured.

    ``quantity`` is what a page calls that which the figure is of, of a ``stage`` its time.
    ``stated_error`` is the document's own, as a fraction of what was measured.
    """

    group: str
    quantity: str
    figure: str
    predicted: float
    measured: Figure
    is_time: bool = True  # in ms
    stage: str | None = None
    stated_error: float | None = None
    remark: str = ""  # what it is of

    @property
    def subject(self) -> str:
        """The quantity, or the stage."""
        return self.quantity if self.stage is None else f"{self.stage} stage"

    @property
    def error_fraction(self) -> float | None:
        """How far off, as a fraction of what was measured: as stated, else, as between two results,
        from the two; None of nothing measured."""
        if self.stated_error is not None:
            return self.stated_error
        measured = self.measured.value
        return (self.predicted - measured) / measured if measured else None


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the answer's table."""

    heading: str
    percent: bool = False


@dataclass(frozen=True, slots=True)
class AnswerTable:
    """The figures behind the verdict; ``notes`` stand above them.

    One that ``is_folded`` is there for whoever opens it.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    is_folded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One file of results: the verdict, what it rests on, and the runs.

    ``basis`` are terms and their words: requests, seed, interval, origin of the figures.
    """

    label: str
    kind: str
    verdict: str
    tables: tuple[AnswerTable, ...]
    basis: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...] = ()
    runs: tuple[Run, ...] = ()
    predictions: tuple[Prediction, ...] = ()


def runs_of(results: Iterable[Result]) -> tuple[Run, ...]:
    """The runs of all results, each with a style of its own; names say whose they are where there
    are several results."""
    listed = list(results)
    named = [
        replace(
            run,
            name=run.name if len(listed) == 1 else f"{run.name} ({result.label})",
            label=run.name,
            result=result.label,
        )
        for result in listed
        for run in result.runs
    ]
    return tuple(replace(run, style=style) for style, run in enumerate(named))
