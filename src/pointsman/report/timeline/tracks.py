"""The processes and tracks of a trace file, each with a number that occurs once in it."""

from __future__ import annotations

from pointsman.report.timeline.events import metadata, track_of
from pointsman.report.timeline.story import ROUTER, Story

CHOICES, HELD, QUEUED, RUNNING = "choices", "held", "queued", "running"
_ORDER = (CHOICES, HELD, QUEUED, RUNNING)
_APART = 1 << 21  # between the first tracks of two kinds, in their order


class Numbers:
    """Ever another number."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        """One that was never given."""
        self._last += 1
        return self._last


class Tracks:
    """Those of one story: a process of its router, one a replica, and tracks where needed."""

    def __init__(self, story: Story, numbers: Numbers) -> None:
        self._numbers = numbers
        self._known: dict[tuple[int, str, int], str] = {}
        self.names: list[str] = []  # events
        names = {ROUTER: "router", **dict(enumerate(story.places))}
        self._pids = {place: numbers.next() for place in names}
        for place, name in names.items():
            process = f'"pid":{self._pids[place]}'
            full = {"name": f"{story.label}: {name}"}
            self.names.append(metadata(process, "process_name", full))
            order = {"sort_index": self._pids[place]}
            self.names.append(metadata(process, "process_sort_index", order))

    def pid(self, place: int) -> int:
        """The process of a replica, or of the router."""
        return self._pids[place]

    def track(self, place: int, kind: str, lane: int = 0) -> str:
        """The track of a lane, made and named when it is first asked for."""
        key = (place, kind, lane)
        if key not in self._known:
            self._known[key] = self._made(*key)
        return self._known[key]

    def _made(self, place: int, kind: str, lane: int) -> str:
        track = track_of(self._pids[place], self._numbers.next())
        name = kind if kind == CHOICES else f"{kind} {lane + 1}"
        self.names.append(metadata(track, "thread_name", {"name": name}))
        order = {"sort_index": _ORDER.index(kind) * _APART + lane}
        self.names.append(metadata(track, "thread_sort_index", order))
        return track
