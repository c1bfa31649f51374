"""Reads decision logs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

import msgspec

from pointsman.core.errors import InputError, MachineError, PointsmanError, wrong_value
from pointsman.dispatch.log_parts import in_order
from pointsman.dispatch.record import (
    READ_VERSIONS,
    SCHEMA,
    STATUSES,
    Ask,
    Choice,
    Event,
    FellBack,
    FirstToken,
    HandedOff,
    Held,
    Joined,
    Line,
    LogHead,
    Outcome,
    Pair,
    Prefilled,
    Reading,
    Snapshot,
    Unplaced,
)
from pointsman.dispatch.snapshot import check_snapshot, held_in, sequences_of
from pointsman.policies.policy import LOGGED_ROWS
from pointsman.workload.workload import MAX_TOKENS


@dataclass(frozen=True, slots=True)
class Log:
    """A log that was read: ``events`` as they happened, and the choices and outcomes of them.

    ``asks`` are the choices and what was held, in the order of their sequences. ``outcomes`` lacks
    the requests that were in flight at its end, and has those of requests that were sent before its
    first file began; ``held`` has the sequences of those that were held at its end. ``replicas``:
    URLs, those that joined later too.
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
    snapshots: list[Snapshot] = field(default_factory=list)
    in_flight: set[int] = field(default_factory=set)  # at its end, by sequence
    further_paths: tuple[Path, ...] = ()

    @property
    def pairs(self) -> list[Pair] | None:
        """What the numbers of candidates stand for where prefill and decode are apart."""
        return None if isinstance(self.head.pairs, msgspec.UnsetType) else self.head.pairs

    def candidate(self, number: int) -> str:
        """A candidate by its URL, or by those of its prefill and decode replica."""
        if self.pairs is None:
            return self.replicas[number]
        return " + ".join(self.replicas[r] for r in self.pairs[number] if r is not None)

    @property
    def paths(self) -> tuple[Path, ...]:
        """Its files, in their order."""
        return (self.path, *self.further_paths)

    @property
    def next_sequence(self) -> int:
        """That of the request that would be sent or held next."""
        after_asks = self.asks[-1].sequence + 1 if self.asks else 0
        after_files = self.snapshots[-1].next_sequence if self.snapshots else 0
        return max(after_asks, after_files)

    @property
    def first_sequence(self) -> int:
        """That of its first request."""
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
        """Those of its sequences that are in no file of it: of choices, or of what was held."""
        return self.next_sequence - self.first_sequence - len(self.asks)


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
    if line.version not in READ_VERSIONS:
        known = " or ".join(map(str, READ_VERSIONS))
        raise wrong_value(where, "version", line.version, f"{known}; read it with its own version")
    if not line.replicas:
        raise wrong_value(where, "replicas", line.replicas, "at least one replica")
    if not 1 <= line.block_tokens <= MAX_TOKENS:
        wanted = f"an integer in 1..{MAX_TOKENS}"
        raise wrong_value(where, "block_tokens", line.block_tokens, wanted)
    _check_pairs(where, line)
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
    elif isinstance(line, Choice | Held | Unplaced):
        _add_request(log, line, where)
    elif isinstance(line, Outcome):
        _check_outcome(log, line, where)
        log.outcomes[line.sequence] = line
        log.in_flight.remove(line.sequence)
    elif isinstance(line, FirstToken | Prefilled | HandedOff | FellBack):
        if not isinstance(line, FirstToken):
            _check_handoff(log, line, where)
        _check_sequence(log, line.sequence, where)
    elif isinstance(line, Joined):
        _check_joined(log, line, where)
        log.replicas.append(line.url)
    else:
        _check_reading(log, line, where)
    log.events.append(line)


def _add_request(log: Log, line: Choice | Held | Unplaced, where: str) -> None:
    if isinstance(line, Ask):
        _check_ask(log, line, where)
    _let_go(log, line.after, where)
    if isinstance(line, Unplaced):
        log.unplaced.append(line)
        return
    log.asks.append(line)
    if isinstance(line, Choice):
        log.choices.append(line)
        log.in_flight.add(line.sequence)
    else:
        log.held.add(line.sequence)


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
    check_snapshot(snapshot, len(replicas), where, len(log.pairs or ()))


def _go_on_from(log: Log, snapshot: Snapshot) -> None:
    log.snapshots.append(snapshot)
    log.replicas[:] = _replicas_of(log, snapshot)
    log.in_flight.clear()
    log.in_flight.update(sequences_of(snapshot))
    log.held.clear()
    log.held.update(held_in(snapshot))


def _replicas_of(log: Log, snapshot: Snapshot) -> list[str]:
    return [*log.head.replicas, *(joined.url for joined in snapshot.joined)]


def _let_go(log: Log, after: int | None, where: str) -> None:
    if after is None:
        return
    if after not in log.held:
        raise wrong_value(where, "after", after, "the sequence of a request that is held")
    log.held.remove(after)


def _check_ask(log: Log, choice: Ask, where: str) -> None:
    expected = log.next_sequence
    if choice.sequence != expected:
        raise wrong_value(where, "sequence", choice.sequence, f"{expected}, one a choice")
    replicas = len(log.replicas if log.pairs is None else log.pairs)
    if not choice.candidates or not all(0 <= k < replicas for k in choice.candidates):
        wanted = f"replicas in 0..{replicas - 1}, at least one"
        raise wrong_value(where, "candidates", choice.candidates, wanted)
    if choice.replica not in choice.candidates:
        raise wrong_value(where, "replica", choice.replica, "one of the candidates")
    told = None if isinstance(choice.pair, msgspec.UnsetType) else choice.pair
    wanted_pair = None if log.pairs is None else log.pairs[choice.replica]
    if told != wanted_pair:
        raise wrong_value(where, "pair", told, f"{wanted_pair}, as the head says")
    _check_view(log, choice, where)


def _check_handoff(log: Log, line: Prefilled | HandedOff | FellBack, where: str) -> None:
    if log.pairs is None:
        raise InputError(f"{where}: is of a hand-off; expected a head with pairs before it")
    if isinstance(line, HandedOff) and not 0 <= line.replica < len(log.pairs):
        raise wrong_value(where, "replica", line.replica, f"a pair in 0..{len(log.pairs) - 1}")


def _check_pairs(where: str, head: LogHead) -> None:
    if isinstance(head.pairs, msgspec.UnsetType):
        return
    numbers = [r for pair in head.pairs for r in pair if r is not None]
    if not numbers or not all(0 <= r < len(head.replicas) for r in numbers):
        wanted = f"pairs of replicas in 0..{len(head.replicas) - 1}, at least one"
        raise wrong_value(where, "pairs", head.pairs, wanted)


def _check_view(log: Log, choice: Ask, where: str) -> None:
    if not set(choice.seen) <= set(choice.candidates):
        raise wrong_value(where, "seen", choice.seen, "some of the candidates")
    holders = set(choice.candidates) if log.pairs is None else set(range(len(log.replicas)))
    if not set(choice.hits) <= holders:
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
