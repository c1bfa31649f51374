"""Small runs as a chart of characters: a line a request, its stages over one axis of time.

A character shows which stage took most of its span of time, of equals the later one; it is blank
only where there was none. It fits 80 columns and has no colour.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from pointsman.core.errors import InputError
from pointsman.report.table import cell_width, number
from pointsman.report.timeline.story import Stage, Story
from pointsman.workload.workload import Floats

MOST_REQUESTS = 40
WIDTH = 80
_LONGEST_NAME = 12
_TICK = 10  # characters between two figures of the axis
_NICE = (1.0, 2.0, 5.0)


@dataclass(frozen=True, slots=True)
class _Axis:
    """``step_ms`` a character, from ``origin_ms`` on, so many ``characters``."""

    origin_ms: float
    step_ms: float
    characters: int

    @property
    def unit(self) -> str:
        """Of its figures."""
        return "ms" if self.step_ms < 1000.0 else "s"


def check_few_enough(requests: int) -> None:
    """Raise InputError where there are more requests than a screen shows."""
    if requests > MOST_REQUESTS:
        raise InputError(
            f"--gantt: the workload has {requests:,} requests; expected at most {MOST_REQUESTS},"
            f" as with --limit {MOST_REQUESTS}; --timeline FILE shows any number"
        )


def gantt_text(stories: Sequence[Story]) -> str:
    """A chart a run, all on the same axis. Raises InputError as ``check_few_enough`` does."""
    for story in stories:
        check_few_enough(len(story))
    heads = [_heads(story) for story in stories]
    widths = [max(map(cell_width, column)) for column in zip(*_flat(heads), strict=True)]
    axis = _axis(stories, WIDTH - sum(widths) - len(widths))
    lines = [_key(stories), _scale(axis), ""]
    for story, rows in zip(stories, heads, strict=True):
        lines += [story.label, _line(rows[0], widths) + _figures(axis)]
        order = _order(story)
        lines += [_line(rows[1 + k], widths) + _chart(story, k, axis) for k in order]
        lines.append("")
    return "\n".join(line.rstrip() for line in lines[:-1]) + "\n"


def _flat(heads: list[list[tuple[str, ...]]]) -> list[tuple[str, ...]]:
    return [row for rows in heads for row in rows]


def _heads(story: Story) -> list[tuple[str, ...]]:
    """What stands before the charts: the headings, then a row a request."""
    begin_ms, run_ms, end_ms = _bounds(story)
    rows: list[tuple[str, ...]] = [("replica", "request", "wait ms", "total")]
    for k, request in enumerate(story.requests):
        spans = (run_ms[k] - begin_ms[k], end_ms[k] - begin_ms[k])
        figures = ["-" if np.isnan(span) else number(float(span)) for span in spans]
        rows.append((_route(story, k), _short(request), *figures))
    return rows


def _route(story: Story, k: int) -> str:
    """The number of the request's replica, or of both."""
    places = [int(stay.place[k]) for stay in story.stays if stay.runs and stay.place[k] >= 0]
    return ">".join(map(str, dict.fromkeys(places))) or "-"


def _short(name: str) -> str:
    """At most so many columns of a terminal, in which a character may take two."""
    printable = "".join(c if c.isprintable() else "?" for c in name)
    if cell_width(printable) <= _LONGEST_NAME:
        return printable
    while cell_width(printable) > _LONGEST_NAME - 2:
        printable = printable[:-1]
    return printable + ".."


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    pads = [" " * (width - cell_width(text)) for text, width in zip(cells, widths, strict=True)]
    left = [text + pad + " " for text, pad in zip(cells[:2], pads[:2], strict=True)]
    right = [pad + text + " " for text, pad in zip(cells[2:], pads[2:], strict=True)]
    return "".join(left + right)


def _bounds(story: Story) -> tuple[Floats, Floats, Floats]:
    """When each request came, when it first ran and when it ended; NaN where it did not."""
    begins = [stay.begin_ms for stay in story.stays]
    runs = [stay.begin_ms for stay in story.stays if stay.runs]
    ends = [stay.end_ms for stay in story.stays]
    return _least(begins), _least(runs), -_least([-each for each in ends])


def _least(columns: list[Floats]) -> Floats:
    return np.asarray(np.fmin.reduce(np.array(columns)))


def _axis(stories: Sequence[Story], characters: int) -> _Axis:
    """The finest nice step at which all runs fit."""
    bounds = [_bounds(story) for story in stories]
    begins = np.concatenate([begin_ms for begin_ms, _, _ in bounds])
    ends = np.concatenate([end_ms for _, _, end_ms in bounds])
    if not begins.size or np.isnan(begins).all():
        return _Axis(0.0, 1.0, characters)
    origin_ms = float(np.nanmin(begins))
    span_ms = float(np.nanmax(ends)) - origin_ms
    least = span_ms / characters
    exponent = int(np.floor(np.log10(least))) if least > 0 else 0
    steps = (nice * 10.0**e for e in (exponent, exponent + 1) for nice in _NICE)
    return _Axis(origin_ms, next(s for s in steps if s * characters >= span_ms), characters)


def _scale(axis: _Axis) -> str:
    return f"a character is {number(axis.step_ms)} ms; {axis.unit} since the first arrival"


def _figures(axis: _Axis) -> str:
    """Each begins where its time is; one that would touch the one before it is left out."""
    step = axis.step_ms / (1.0 if axis.unit == "ms" else 1000.0)
    text = ""
    for place in range(0, axis.characters, _TICK):
        figure = number(place * step, digits=6)
        if (not text or len(text) < place) and place + len(figure) <= axis.characters:
            text = text.ljust(place) + figure
    return text


def _key(stories: Sequence[Story]) -> str:
    meanings: dict[str, str] = {}
    for stage in (stage for story in stories for stage in _stages(story)):
        if stage.happened.any():
            meanings.setdefault(stage.mark, stage.name)
    return "   ".join(f"{mark} {name}" for mark, name in meanings.items())


def _stages(story: Story) -> Iterator[Stage]:
    for stay in story.stays:
        yield from stay.stages


def _order(story: Story) -> list[int]:
    """By replica, then by when they began to run; those that never did last."""
    _, run_ms, _ = _bounds(story)
    place = np.full(len(story), np.inf)
    for stay in story.stays:
        if stay.runs:
            place = np.where(np.isinf(place) & (stay.place >= 0), stay.place, place)
    order: list[int] = np.lexsort((np.arange(len(story)), run_ms, place)).tolist()
    return order


def _chart(story: Story, k: int, axis: _Axis) -> str:
    shares = np.zeros(axis.characters)
    shown = np.full(axis.characters, " ")
    edges = axis.origin_ms + axis.step_ms * np.arange(axis.characters + 1)
    for stage in _stages(story):
        if not stage.happened[k]:
            continue
        within = np.minimum(edges[1:], stage.end_ms[k]) - np.maximum(edges[:-1], stage.begin_ms[k])
        most = (within > 0) & (within >= shares - 1e-9 * axis.step_ms)
        shown[most] = stage.mark
        shares = np.maximum(shares, within)
    text = "".join(shown).rstrip()
    return text or _what_became_of(story, k)


def _what_became_of(story: Story, k: int) -> str:
    for instants in story.instants:
        if not np.isnan(instants.at_ms[k]):
            return str(instants.names[instants.code[k]])
    return ""
