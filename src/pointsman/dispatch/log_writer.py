"""Writes decision logs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from pointsman.dispatch.chosen import Chosen
from pointsman.dispatch.log_rotation import LogFiles, Rotation, write_all
from pointsman.dispatch.record import ALL_CANDIDATES, Event, Joined, Line, LogHead, Snapshot

BUFFER_BYTES = 1 << 18
ENCODED_AT_ONCE = 64  # lines: one after the other they take half of what they take one by one
ONE_FILE = Rotation(most_bytes=0)


def _at_once(act: Callable[[], None]) -> None:
    act()


class DecisionLog:
    """A new log, written through a buffer; call ``flush`` at least once a second.

    A write that fails is complained about once. The file ends there, so that it stays readable,
    and ``lost_lines`` counts what is missing; no caller is troubled.

    It goes on in a further file by ``rotate_if_full`` and ``reopen_if_moved``, which are not to be
    called while an event is being counted: the snapshot is of the accounts after all lines.
    """

    def __init__(
        self,
        path: Path,
        head: LogHead,
        complain: Callable[[str], None],
        rotation: Rotation = ONE_FILE,
        aside: Callable[[Callable[[], None]], object] = _at_once,
    ) -> None:
        """Create the file. ``aside`` calls what takes long, the deletion of a large file.

        Raises InputError when it holds something, MachineError as ever.
        """
        self.path = path
        self.lost_lines = 0
        self._head = head
        self._complain = complain
        self._aside = aside
        self._most_bytes = rotation.most_bytes
        self._encoder = msgspec.json.Encoder()
        self._buffer = bytearray()
        self._lines: list[Line | Chosen] = []  # not encoded yet
        self._buffered_lines = 0
        self._written_bytes = 0  # since the last attempt to begin a file
        self._joined: list[Joined] = []
        self._files = LogFiles(path, rotation)
        self._lines.append(head)
        self.flush()

    def write(self, line: Event) -> None:
        """Add a line."""
        self._lines.append(line)
        if isinstance(line, Joined):
            self._joined.append(line)
        if len(self._lines) >= ENCODED_AT_ONCE:
            self._encode_some()

    def write_choice(self, chosen: Chosen) -> None:
        """Add the line of a choice. Where its view is small it is made later, with the others:
        that takes less time than one by one, between other work."""
        if len(chosen.situation.candidates) > ALL_CANDIDATES:
            self.write(chosen.line())
            return
        self._lines.append(chosen.kept())
        if len(self._lines) >= ENCODED_AT_ONCE:
            self._encode_some()

    def flush(self) -> None:
        """Hand what is buffered to the operating system."""
        self._encode()
        if not self._buffer:
            return
        file = self._files.open_file
        try:
            if file is not None:
                write_all(file, bytes(self._buffer))
        except OSError as error:
            self._give_up(error)
        if self._files.open_file is None:
            self.lost_lines += self._buffered_lines
        self._written_bytes += len(self._buffer)
        self._buffer.clear()
        self._buffered_lines = 0

    def rotate_if_full(self, snapshot: Callable[[], Snapshot]) -> None:
        """Begin a further file where this one is as long as it may be."""
        self.flush()
        is_full = 0 < self._most_bytes <= self._written_bytes
        if is_full and self._files.can_rotate and self._files.open_file is not None:
            self._begin_next(snapshot())

    def reopen_if_moved(self, snapshot: Callable[[], Snapshot]) -> None:
        """Begin a further file where this one bears another name now, or none, or had to end."""
        self.flush()
        if self._files.can_rotate and (self._files.open_file is None or self._files.has_moved):
            self._begin_next(snapshot())

    def close(self) -> None:
        """Write what is left, and close the file for good."""
        self.flush()
        self._files.close()
        self._files.can_rotate = False
        if self.lost_lines:
            self._complain(f"decision log {self.path}: {self.lost_lines} lines were not written")

    def _begin_next(self, snapshot: Snapshot) -> None:
        self._written_bytes = 0
        number = self._files.number + 1
        whole = msgspec.structs.replace(snapshot, file=number, joined=self._joined)
        head, line = self._encoder.encode(self._head), self._encoder.encode(whole)
        try:
            self._files.begin_next((head, b"\n", line, b"\n"))
        except OSError as error:
            self._complain(f"decision log {self.path}: no further file: {error.strerror}")
        else:
            for older in self._files.take_surplus():
                self._aside(partial(older.delete, self._complain))

    def _encode_some(self) -> None:
        self._encode()
        if len(self._buffer) >= BUFFER_BYTES:
            self.flush()

    def _encode(self) -> None:
        lines = [each.line() if type(each) is Chosen else each for each in self._lines]
        self._buffer += self._encoder.encode_lines(lines)
        self._buffered_lines += len(self._lines)
        self._lines.clear()

    def _give_up(self, error: OSError) -> None:
        self._complain(
            f"decision log {self.path}: {error.strerror}; the log ends here, requests go on"
        )
        self._files.close()
