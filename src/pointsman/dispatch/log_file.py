"""Writes and reads decision logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO

import msgspec

from pointsman.core.errors import InputError, MachineError, PointsmanError, wrong_value
from pointsman.dispatch.log_parts import in_order
from pointsman.dispatch.log_rotation import LogFiles, Rotation, write_all
from pointsman.dispatch.record import (
    SCHEMA,
    STATUSES,
    VERSION,
    Choice,
    Event,
    FirstToken,
    Joined,
    Line,
    LogHead,
    Outcome,
    Reading,
    Snapshot,
)
from pointsman.dispatch.snapshot import check_snapshot, sequences_of
from pointsman.policies.policy import LOGGED_ROWS
from pointsman.workload.workload import MAX_TOKENS

BUFFER_BYTES = 1 << 18
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
        self._buffered_lines = 0
        self._written_bytes = 0  # since the last attempt to begin a file
        self._joined: list[Joined] = []
        self._files = LogFiles(path, rotation)
        self._append(head)
        self.flush()

    def write(self, line: Event) -> None:
        """Add a line."""
        self._append(line)
        if isinstance(line, Joined):
            self._joined.append(line)
        if len(self._buffer) >= BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand what is buffered to the operating system."""
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

    def _append(self, line: Line) -> None:
        self._buffer += self._encoder.encode(line)
        self._buffer += b"\n"
        self._buffered_lines += 1

    def _give_up(self, error: OSError) -> None:
        self._complain(
            f"decision log {self.path}: {error.strerror}; the log ends here, requests go on"
        )
        self._files.close()


@dataclass(frozen=True, slots=True)
class Log:
    """A log that was read: ``events`` as they happened, and the choices and outcomes of them.

    ``outcomes`` lacks the requests that were in flight at its end, and has those of requests that
    were sent before its first file began. ``replicas``: URLs, those that joined later too.
    """

    path: Path
    head: LogHead
    replicas: list[str]
    events: list[Event] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    outcomes: dict[int, Outcome] = field(default_factory=dict)  # by sequence
    truncated_lines: int = 0  # 1 where the router was killed within its last line
    snapshots: list[Snapshot] = field(default_factory=list)
    in_flight: set[int] = field(default_factory=set)  # at its end, by sequence
    further_paths: tuple[Path, ...] = ()

    @property
    def paths(self) -> tuple[Path, ...]:
        """Its files, in their order."""
        return (self.path, *self.further_paths)

    @property
    def next_sequence(self) -> int:
        """That of the choice that would come next."""
        after_choices = self.choices[-1].sequence + 1 if self.choices else 0
        after_files = self.snapshots[-1].next_sequence if self.snapshots else 0
        return max(after_choices, after_files)

    @property
    def first_sequence(self) -> int:
        """That of its first choice."""
        begins_later = self.events and isinstance(self.events[0], Snapshot)
        return self.snapshots[0].next_sequence if begins_later else 0

    @property
    def earlier_outcomes(self) -> int:
        """Outcomes of requests whose choice is in no file of it."""
        return len(self.outcomes.keys() - {choice.sequence for choice in self.choices})

    @property
    def unfinished(self) -> int:
        """Choices without an outcome."""
        return len(self.choices) - len(self.outcomes) + self.earlier_outcomes

    @property
    def missing_choices(self) -> int:
        """Choices between its first and its last that are in no file of it."""
        return self.next_sequence - self.first_sequence - len(self.choices)


def read_log(path: Path, *more: Path) -> Log:
    """Read and check a whole log, of one file or of several of one run, in any order.

    Raises InputError, ``FILE line N: ...``, at the first line that is wrong; a last line that
    was cut off is only counted.
    """
    paths = in_order((path, *more))
    log: Log | None = None
    for each in paths:
        try:
            with open(each, "rb") as file:
                log = _read(each, file, log)
        except OSError as error:
            if isinstance(error, PointsmanError):
                raise
            raise MachineError(f"cannot read {each}: {error.strerror}") from error
    assert log is not None
    return replace(log, further_paths=paths[1:])


def _read(path: Path, file: IO[bytes], log: Log | None) -> Log:
    """The log so far with this file."""
    truncated, last, is_new = 0, None, True
    for where, line in _lines(path, file):
        if line is None:
            truncated = 1
        elif log is None:
            head = _checked_head(where, line)
            log, last = Log(path, head, list(head.replicas)), line
        else:
            if is_new and not isinstance(line, LogHead):
                raise InputError(f"{where}: is no head; expected a line with event log")
            _add(log, line, last, where)
            last = line
        is_new = False
    if log is None or is_new:
        raise InputError(f"{path} line 1: is missing; expected a line with event log")
    return replace(log, truncated_lines=log.truncated_lines + truncated)


def _lines(path: Path, file: IO[bytes]) -> Iterator[tuple[str, Line | None]]:
    """Every line with its place; None for a last one that was cut off."""
    decoder = msgspec.json.Decoder(Line)
    for number, text in enumerate(file, start=1):
        where = f"{path} line {number}"
        try:
            yield where, decoder.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            if not text.endswith(b"\n"):
                yield where, None
                return
            raise InputError(f"{where}: {error}; expected a line of a decision log") from None


def _checked_head(where: str, line: Line) -> LogHead:
    if not isinstance(line, LogHead):
        raise InputError(f"{where}: is no head; expected a line with event log")
    if line.schema != SCHEMA:
        raise wrong_value(where, "schema", line.schema, SCHEMA)
    if line.version != VERSION:
        raise wrong_value(
            where, "version", line.version, f"{VERSION}; read it with its own version"
        )
    if not line.replicas:
        raise wrong_value(where, "replicas", line.replicas, "at least one replica")
    if not 1 <= line.block_tokens <= MAX_TOKENS:
        wanted = f"an integer in 1..{MAX_TOKENS}"
        raise wrong_value(where, "block_tokens", line.block_tokens, wanted)
    return line


def _add(log: Log, line: Line, last: Line | None, where: str) -> None:
    """Another line of the log; ``last`` stands before it."""
    if isinstance(line, LogHead):
        if line != log.head:
            raise InputError(f"{where}: is the head of another run; expected files of one")
        return
    if isinstance(last, LogHead) and log.events and not isinstance(line, Snapshot):
        raise InputError(f"{where}: is no snapshot; expected one where a log goes on")
    if isinstance(line, Snapshot):
        if not isinstance(last, LogHead):
            raise InputError(f"{where}: is a snapshot; expected it right after a head")
        _check_snapshot(log, line, where)
        _go_on_from(log, line)
    elif isinstance(line, Choice):
        _check_choice(log, line, where)
        log.choices.append(line)
        log.in_flight.add(line.sequence)
    elif isinstance(line, Outcome):
        _check_outcome(log, line, where)
        log.outcomes[line.sequence] = line
        log.in_flight.remove(line.sequence)
    elif isinstance(line, FirstToken):
        _check_sequence(log, line.sequence, where)
    elif isinstance(line, Joined):
        _check_joined(log, line, where)
        log.replicas.append(line.url)
    else:
        _check_reading(log, line, where)
    log.events.append(line)


def _check_snapshot(log: Log, snapshot: Snapshot, where: str) -> None:
    before = log.snapshots[-1].file if log.snapshots else int(bool(log.events))
    if snapshot.file <= before:
        wanted = f"{before + 1} or later; is a file given twice?"
        raise wrong_value(where, "file", snapshot.file, wanted)
    if snapshot.next_sequence < log.next_sequence:
        wanted = f"{log.next_sequence} or more"
        raise wrong_value(where, "next_sequence", snapshot.next_sequence, wanted)
    replicas = _replicas_of(log, snapshot)
    if replicas[: len(log.replicas)] != log.replicas:
        raise wrong_value(where, "replicas", replicas, f"{log.replicas}, and those that joined")
    check_snapshot(snapshot, len(replicas), where)


def _go_on_from(log: Log, snapshot: Snapshot) -> None:
    log.snapshots.append(snapshot)
    log.replicas[:] = _replicas_of(log, snapshot)
    log.in_flight.clear()
    log.in_flight.update(sequences_of(snapshot))


def _replicas_of(log: Log, snapshot: Snapshot) -> list[str]:
    return [*log.head.replicas, *(joined.url for joined in snapshot.joined)]


def _check_choice(log: Log, choice: Choice, where: str) -> None:
    expected = log.next_sequence
    if choice.sequence != expected:
        raise wrong_value(where, "sequence", choice.sequence, f"{expected}, one a choice")
    replicas = len(log.replicas)
    if not choice.candidates or not all(0 <= k < replicas for k in choice.candidates):
        wanted = f"replicas in 0..{replicas - 1}, at least one"
        raise wrong_value(where, "candidates", choice.candidates, wanted)
    if choice.replica not in choice.candidates:
        raise wrong_value(where, "replica", choice.replica, "one of the candidates")
    _check_view(choice, where)


def _check_view(choice: Choice, where: str) -> None:
    if not set(choice.seen) <= set(choice.candidates):
        raise wrong_value(where, "seen", choice.seen, "some of the candidates")
    if not set(choice.hits) <= set(choice.candidates):
        raise wrong_value(where, "hits", choice.hits, "some of the candidates")
    for signal in LOGGED_ROWS:
        row = choice.view.get(signal)
        if row is None or len(row) != len(choice.seen):
            wanted = f"{len(choice.seen)} entries, one for each that was seen"
            raise wrong_value(where, f"view.{signal}", row, wanted)


def _check_sequence(log: Log, sequence: int, where: str) -> None:
    if sequence in log.outcomes:
        raise wrong_value(where, "sequence", sequence, "that of a request in flight")
    if sequence not in log.in_flight:
        raise wrong_value(where, "sequence", sequence, "that of a choice above")


def _check_joined(log: Log, joined: Joined, where: str) -> None:
    if joined.replica != len(log.replicas):
        raise wrong_value(where, "replica", joined.replica, f"{len(log.replicas)}, the next one")


def _check_reading(log: Log, reading: Reading, where: str) -> None:
    if not 0 <= reading.replica < len(log.replicas):
        wanted = f"a replica in 0..{len(log.replicas) - 1}"
        raise wrong_value(where, "replica", reading.replica, wanted)


def _check_outcome(log: Log, outcome: Outcome, where: str) -> None:
    if outcome.sequence in log.outcomes:
        raise wrong_value(where, "sequence", outcome.sequence, "one outcome a choice")
    if outcome.sequence not in log.in_flight:
        raise wrong_value(where, "sequence", outcome.sequence, "that of a choice above")
    if outcome.status not in STATUSES:
        raise wrong_value(where, "status", outcome.status, f"one of {', '.join(STATUSES)}")
