"""What happened when in a run, as columns: a row a request; times in ms of the run's own clock.

    Story ── stays ── stages      where a request was, and what happened to it there, one after the
                                  other: a prefill and a decode are two stages of one stay
          ── instants             what has a time and no length: the router's choices, failures
          ── arrows               from the end of a stage to the begin of another one
          ── gauges               what was sampled of a replica

Whoever has a run makes a Story of it (``simulated``, ``measured``, ``recorded``); whoever shows
one reads nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointsman.workload.workload import Floats

NOWHERE = -1
ROUTER = -2  # the place of what happens before a request is sent to a replica

Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """One thing that happens to a request; NaN at either end where it did not.

    ``mark`` is its character in a chart.
    """

    name: str
    mark: str
    begin_ms: Floats
    end_ms: Floats

    @property
    def happened(self) -> NDArray[np.bool_]:
        """To which requests."""
        return np.asarray(np.isfinite(self.begin_ms) & np.isfinite(self.end_ms))

    def only(self, rows: NDArray[np.bool_], name: str | None = None) -> Stage:
        """The stage of those requests alone, under another name if one is given."""
        begin_ms = np.where(rows, self.begin_ms, np.nan)
        return Stage(self.name if name is None else name, self.mark, begin_ms, self.end_ms)


@dataclass(frozen=True, slots=True, eq=False)
class Stay:
    """A request's stay at a place: in its queue, or, ``runs``, in one of its running slots.

    ``place``: the number of a replica, ROUTER, or NOWHERE. Each stage begins when the one before
    it ends, or later.
    """

    place: Places
    stages: tuple[Stage, ...]
    runs: bool

    @property
    def begin_ms(self) -> Floats:
        """Of its first stage that happened; NaN: the request never was there."""
        return _first([np.where(s.happened, s.begin_ms, np.nan) for s in self.stages])

    @property
    def end_ms(self) -> Floats:
        """Of its last stage that happened."""
        return _first([np.where(s.happened, s.end_ms, np.nan) for s in self.stages[::-1]])


def _first(columns: Sequence[Floats]) -> Floats:
    """Row by row the first value that is there."""
    found = columns[0]
    for column in columns[1:]:
        found = np.where(np.isnan(found), column, found)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Instants:
    """What happens to a request at an instant; NaN where nothing does.

    ``code`` is an index into ``names``; ``places`` are told with it, each by what it is.
    """

    names: tuple[str, ...]
    code: NDArray[Any]
    at_ms: Floats
    places: tuple[tuple[str, Places], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Arrow:
    """From the end of a stage to the begin of another; each by its stay and its number there."""

    name: str
    origin: tuple[int, int]
    target: tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Gauge:
    """What was sampled of one replica."""

    name: str
    unit: str
    place: int
    at_ms: Floats
    values: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Story:
    """One run. ``facts`` are shown with a request; of them negative ones and NaN are unknown."""

    label: str
    places: tuple[str, ...]  # the names of the replicas
    requests: Sequence[str]  # the name of each request
    stays: tuple[Stay, ...]
    instants: tuple[Instants, ...] = ()
    arrows: tuple[Arrow, ...] = ()
    gauges: tuple[Gauge, ...] = ()
    facts: dict[str, NDArray[Any]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.requests)
