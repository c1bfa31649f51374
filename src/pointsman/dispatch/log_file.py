"""Writes and reads decision logs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

import msgspec

from pointsman.core.errors import InputError, MachineError, wrong_value
from pointsman.dispatch.record import (
    READ_VERSIONS,
    SCHEMA,
    STATUSES,
    Ask,
    Choice,
    Event,
    FirstToken,
    Held,
    Joined,
    Line,
    LogHead,
    Outcome,
    Reading,
    Unplaced,
)
from pointsman.policies.policy import LOGGED_ROWS
from pointsman.workload.workload import MAX_TOKENS

BUFFER_BYTES = 1 << 18


class DecisionLog:
    """A new log file, written through a buffer; call ``flush`` at least once a second.

    A write that fails is complained about once. The file ends there, so that it stays readable,
    and ``lost_lines`` counts what is missing; no caller is troubled.
    """

    def __init__(self, path: Path, head: LogHead, complain: Callable[[str], None]) -> None:
        """Create the file. Raises InputError when it holds something, MachineError as ever."""
        self.path = path
        self.lost_lines = 0
        self._complain = complain
        self._encoder = msgspec.json.Encoder()
        self._buffer = bytearray()
        self._buffered_lines = 0
        self._file: IO[bytes] | None = _new_file(path)
        self._append(head)
        self.flush()

    def write(self, line: Event) -> None:
        """Add a line."""
        self._append(line)
        if len(self._buffer) >= BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        """Hand what is buffered to the operating system."""
        if not self._buffer:
            return
        left = bytes(self._buffer)
        try:
            while self._file is not None and left:
                left = left[self._file.write(left) :]
        except OSError as error:
            self._give_up(error)
        if self._file is None:
            self.lost_lines += self._buffered_lines
        self._buffer.clear()
        self._buffered_lines = 0

    def close(self) -> None:
        """Write what is left, and close the file."""
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None
        if self.lost_lines:
            self._complain(f"decision log {self.path}: {self.lost_lines} lines were not written")

    def _append(self, line: Line) -> None:
        self._buffer += self._encoder.encode(line)
        self._buffer += b"\n"
        self._buffered_lines += 1

    def _give_up(self, error: OSError) -> None:
        self._complain(
            f"decision log {self.path}: {error.strerror}; the log ends here, requests go on"
        )
        if self._file is not None:
            self._file.close()
            self._file = None


def _new_file(path: Path) -> IO[bytes]:
    """Without a buffer of its own: ours alone decides what is on its way."""
    try:
        if path.is_file() and path.stat().st_size:
            raise InputError(f"decision log {path} exists; name a new file, or remove it")
        return open(path, "ab", buffering=0)
    except OSError as error:
        if isinstance(error, InputError):
            raise
        raise MachineError(f"cannot write decision log {path}: {error.strerror}") from error


@dataclass(frozen=True, slots=True)
class Log:
    """A log that was read: ``events`` as they happened, and the choices and outcomes of them.

    ``asks`` are the choices and what was held, by their sequences. ``outcomes`` lacks the requests
    that were in flight at its end, ``held`` has the sequences of those that were held then.
    ``replicas``: URLs, those that joined later too.
    """

    path: Path
    head: LogHead
    replicas: list[str]
    events: list[Event] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    asks: list[Ask] = field(default_factory=list)
    unplaced: list[Unplaced] = field(default_factory=list)
    held: set[int] = field(default_factory=set)
    outcomes: dict[int, Outcome] = field(default_factory=dict)  # by sequence
    truncated_lines: int = 0  # 1 where the router was killed within its last line


def read_log(path: Path) -> Log:
    """Read and check a whole log.

    Raises InputError, ``FILE line N: ...``, at the first line that is wrong; a last line that
    was cut off is only counted.
    """
    try:
        with open(path, "rb") as file:
            return _read(path, file)
    except OSError as error:
        raise MachineError(f"cannot read {path}: {error.strerror}") from error


def _read(path: Path, file: IO[bytes]) -> Log:
    head: LogHead | None = None
    log: Log | None = None
    truncated = 0
    for where, line in _lines(path, file):
        if line is None:
            truncated = 1
        elif log is None:
            head = _checked_head(where, line)
            log = Log(path, head, list(head.replicas))
        else:
            _add(log, line, where)
    if log is None or head is None:
        raise InputError(f"{path} line 1: is missing; expected a line with event log")
    return replace(log, truncated_lines=truncated)


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
    if line.version not in READ_VERSIONS:
        known = " or ".join(map(str, READ_VERSIONS))
        raise wrong_value(where, "version", line.version, f"{known}; read it with its own version")
    if not line.replicas:
        raise wrong_value(where, "replicas", line.replicas, "at least one replica")
    if not 1 <= line.block_tokens <= MAX_TOKENS:
        wanted = f"an integer in 1..{MAX_TOKENS}"
        raise wrong_value(where, "block_tokens", line.block_tokens, wanted)
    return line


def _add(log: Log, line: Line, where: str) -> None:
    if isinstance(line, LogHead):
        raise InputError(f"{where}: is a second head; expected what happened next")
    if isinstance(line, Choice | Held):
        _check_ask(log, line, where)
        _let_go(log, line.after, where)
        log.asks.append(line)
        if isinstance(line, Choice):
            log.choices.append(line)
        else:
            log.held.add(line.sequence)
    elif isinstance(line, Unplaced):
        _let_go(log, line.after, where)
        log.unplaced.append(line)
    elif isinstance(line, Outcome):
        _check_outcome(log, line, where)
        log.outcomes[line.sequence] = line
    elif isinstance(line, FirstToken):
        _check_sequence(log, line.sequence, where)
    elif isinstance(line, Joined):
        _check_joined(log, line, where)
        log.replicas.append(line.url)
    else:
        _check_reading(log, line, where)
    log.events.append(line)


def _let_go(log: Log, after: int | None, where: str) -> None:
    if after is None:
        return
    if after not in log.held:
        raise wrong_value(where, "after", after, "the sequence of a request that is held")
    log.held.remove(after)


def _check_ask(log: Log, choice: Ask, where: str) -> None:
    expected = len(log.asks)
    if choice.sequence != expected:
        raise wrong_value(where, "sequence", choice.sequence, f"{expected}, one a choice")
    replicas = len(log.replicas)
    if not choice.candidates or not all(0 <= k < replicas for k in choice.candidates):
        wanted = f"replicas in 0..{replicas - 1}, at least one"
        raise wrong_value(where, "candidates", choice.candidates, wanted)
    if choice.replica not in choice.candidates:
        raise wrong_value(where, "replica", choice.replica, "one of the candidates")
    _check_view(choice, where)


def _check_view(choice: Ask, where: str) -> None:
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
    _check_was_sent(log, sequence, where)
    if sequence in log.outcomes:
        raise wrong_value(where, "sequence", sequence, "that of a request in flight")


def _check_was_sent(log: Log, sequence: int, where: str) -> None:
    if not 0 <= sequence < len(log.asks) or isinstance(log.asks[sequence], Held):
        raise wrong_value(where, "sequence", sequence, "that of a choice above")


def _check_joined(log: Log, joined: Joined, where: str) -> None:
    if joined.replica != len(log.replicas):
        raise wrong_value(where, "replica", joined.replica, f"{len(log.replicas)}, the next one")


def _check_reading(log: Log, reading: Reading, where: str) -> None:
    if not 0 <= reading.replica < len(log.replicas):
        wanted = f"a replica in 0..{len(log.replicas) - 1}"
        raise wrong_value(where, "replica", reading.replica, wanted)


def _check_outcome(log: Log, outcome: Outcome, where: str) -> None:
    _check_was_sent(log, outcome.sequence, where)
    if outcome.sequence in log.outcomes:
        raise wrong_value(where, "sequence", outcome.sequence, "one outcome a choice")
    if outcome.status not in STATUSES:
        raise wrong_value(where, "status", outcome.status, f"one of {', '.join(STATUSES)}")
