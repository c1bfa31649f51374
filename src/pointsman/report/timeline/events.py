"""Events of the Trace Event Format, as their text.

Source: "Trace Event Format" (Duque, Sinclair and others, Google): the phases B and E (what lasts),
i (an instant), C (a counter), s and f (an arrow, bound to the slice around it) and M (names), with
times in microseconds. And how they are read: google/perfetto
``docs/getting-started/other-formats.md``, ``src/trace_processor/importers/json/``:

- What lasts has to nest on its track; what overlaps goes on tracks of their own.
- Perfetto ties arrows to slices of threads, not to asynchronous ones: hence threads, B and E.
- It cuts times down to whole nanoseconds. With B and E an end and the begin that follows it are the
  same text, and so the same time; a duration (phase X) could come out longer by one.
- It may take a thread by its number alone: no two processes share a number here.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

_encode = msgspec.json.encode


def text(value: object) -> str:
    """A value as JSON."""
    return _encode(value).decode()


class Events:
    """Events in the order of their times; of one time in the order in which they were added.

    Times are whole nanoseconds; ``track`` is what ``track_of`` gives; names and args are JSON.
    """

    def __init__(self) -> None:
        self._at_ns: list[int] = []
        self._texts: list[str] = []

    def begin(self, track: str, at_ns: int, name: str, args: str) -> None:
        """A slice begins."""
        self._add(at_ns, f'"ph":"B",{track},"name":{name},"args":{args}')

    def end(self, track: str, at_ns: int) -> None:
        """The slice that began last on the track ends."""
        self._add(at_ns, f'"ph":"E",{track}')

    def instant(self, track: str, at_ns: int, name: str, args: str) -> None:
        """Something happens."""
        self._add(at_ns, f'"ph":"i","s":"t",{track},"name":{name},"args":{args}')

    def counter(self, pid: int, at_ns: int, name: str, args: str) -> None:
        """A counter of a process has another value from now on."""
        self._add(at_ns, f'"ph":"C","pid":{pid},"name":{name},"args":{args}')

    def arrow_begins(self, track: str, at_ns: int, name: str, number: int) -> None:
        """An arrow begins at the slice that is open on the track."""
        self._add(at_ns, f'"ph":"s",{track},"cat":"flow","name":{name},"id":{number}')

    def arrow_ends(self, track: str, at_ns: int, name: str, number: int) -> None:
        """The arrow of that number ends at the slice that is open on the track."""
        self._add(at_ns, f'"ph":"f","bp":"e",{track},"cat":"flow","name":{name},"id":{number}')

    def texts(self) -> list[str]:
        """Each event as one JSON object."""
        order = np.argsort(np.array(self._at_ns, dtype=np.int64), kind="stable")
        return [self._texts[k] for k in order.tolist()]

    def _add(self, at_ns: int, fields: str) -> None:
        self._at_ns.append(at_ns)
        self._texts.append(f'{{"ts":{at_ns // 1000}.{at_ns % 1000:03d},{fields}}}')


def track_of(pid: int, tid: int) -> str:
    """What says on which track an event lies."""
    return f'"pid":{pid},"tid":{tid}'


def metadata(track: str, what: str, args: Mapping[str, str | int]) -> str:
    """The event that gives a process or a track its name, or its place in the order."""
    return f'{{"ph":"M",{track},"name":{text(what)},"args":{text(args)}}}'
