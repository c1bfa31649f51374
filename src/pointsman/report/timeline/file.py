"""Stories as one trace file.

process     the router of a run, or one of its replicas
track       choices, held 1, held 2 ... of the router; queued 1 ..., running 1 ... of a replica
slice       one stage of one request; its name is the stage's, so that sums go by stage
arrow       from a prefill to the decode on another replica
counter     requests that wait, that run, what was sampled of the replica
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pointsman.core.files import whole_file
from pointsman.report.timeline.drawing import Drawing
from pointsman.report.timeline.events import text
from pointsman.report.timeline.story import Story
from pointsman.report.timeline.tracks import Numbers

SCHEMA = "pointsman.timeline/1"

# Whose stages a file shows, of all its runs together: some 700 bytes each.
MOST_REQUESTS = 200_000

_PIECE = 10_000  # events that are written at once


def write_timeline(
    stories: Sequence[Story], path: Path, most_requests: int = MOST_REQUESTS
) -> list[str]:
    """Write them, gzipped where the name ends in .gz, whole or not at all.

    Where there are more than ``most_requests`` in all, the first ones of each story are shown with
    their stages, and the counters count all. Gives in a sentence each what is not shown, as the
    file says it too. Raises MachineError where it cannot be written.
    """
    numbers = Numbers()
    rows = most_requests // max(1, len(stories))
    notes: list[str] = []
    with _opened(path) as file:
        file.write(b'{"displayTimeUnit":"ms","traceEvents":[')
        separator = "\n"
        for story, shown in zip(stories, _shortly_named(stories), strict=True):
            drawing = Drawing(shown, rows, numbers)
            notes += [f"{story.label}: {note}" for note in drawing.notes]
            for piece in _pieces(drawing.texts()):
                file.write((separator + ",\n".join(piece)).encode())
                separator = ",\n"
        about = {"schema": SCHEMA, "pointsman": version("pointsman"), "notes": "; ".join(notes)}
        file.write(f'\n],"otherData":{text(about)}}}\n'.encode())
    return notes


def _shortly_named(stories: Sequence[Story]) -> Iterator[Story]:
    """Without a policy's parameters, for which a viewer has no room, where nothing else has the
    name."""
    shorts = [story.label.partition("(")[0] for story in stories]
    for story, short in zip(stories, shorts, strict=True):
        yield replace(story, label=short) if shorts.count(short) == 1 else story


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    with whole_file(path) as file:
        if path.suffix != ".gz":
            yield file
            return
        with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
            yield packed


def _pieces(texts: list[str]) -> Iterator[list[str]]:
    for first in range(0, len(texts), _PIECE):
        yield texts[first : first + _PIECE]
