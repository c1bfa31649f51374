"""What a chart shows, before anything is drawn.

Two forms: ``Plot`` has two axes of numbers, ``Rows`` one axis and a row for each name. A value that
is not known has no point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Mark = Literal["line", "steps", "points", "bar", "part"]
LINE: Mark = "line"
STEPS: Mark = "steps"
POINTS: Mark = "points"
BAR: Mark = "bar"
PART: Mark = "part"  # of a bar: each begins where the series before it ended


@dataclass(frozen=True, slots=True)
class Axis:
    """What an axis is of; ``title`` has the unit. ``log`` where values lie far apart.

    A value that a logarithm does not have (0) stands at the axis's beginning, apart from those that
    it has. ``low`` and ``high`` are on the axis whatever the values are.
    """

    title: str
    log: bool = False
    percent: bool = False
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Point:
    """A value, and where it may lie; ``label`` says more than the numbers do."""

    x: float
    y: float
    low: float | None = None  # of y; in rows of x
    high: float | None = None
    label: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """Points that belong together; ``style`` is a number that stands for one colour and mark.

    ``ends_at``: the x where the last one of steps ends; without it that one has no width.
    """

    name: str
    style: int
    points: tuple[Point, ...]
    mark: Mark = LINE
    ends_at: float | None = None


@dataclass(frozen=True, slots=True)
class Reference:
    """A line across the chart: an objective, a bound, no difference."""

    value: float
    text: str
    across: Literal["x", "y"] = "y"  # which axis the value is on


@dataclass(frozen=True, slots=True)
class Table:
    """The numbers behind a chart; None is a cell without a value."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str | float | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Plot:
    """Points between two axes."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    references: tuple[Reference, ...] = ()
    table: Table | None = None  # None: made of the points


@dataclass(frozen=True, slots=True)
class Rows:
    """A row a name; of a point ``y`` is the row's number, from above. All series are parts, or
    none is."""

    title: str
    x: Axis
    names: tuple[str, ...]
    series: tuple[Series, ...]
    references: tuple[Reference, ...] = ()
    table: Table | None = None


Chart: TypeAlias = Plot | Rows
