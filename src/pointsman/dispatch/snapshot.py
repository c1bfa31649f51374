"""A live router's accounts at one instant, as columns, and a ledger made of them again.

    of_replicas[r]     of policies/in_flight.py's ACCOUNT and dispatch/live.py's REPLICA what does
                       not follow from the facts or from the requests; of its AWAITED the sum of
                       the work, as rounding left it
    held[k]            a request that the router holds back for a replica, and what it needs there
    of_requests[i]     of FLIGHT and SLOT, for each request in flight
    answers[j]         for each length that answers had
    pairs[k], link     of PAIR and LINK, where prefill and decode are apart, what was learned; a
                       request whose prefill is not answered stands there twice, its prefill under
                       the complement ~n of its sequence n

Requests stand by replica: first those without a first token, in the order in which they were
sent, then the others, in the order in which the accounts run through them. Whatever links them
is made again from that order, so that no file can make compiled code read where nothing is.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pointsman.core.errors import InputError, wrong_value
from pointsman.costs.iteration import IterationCosts
from pointsman.dispatch.ledger import Ledger, Needs
from pointsman.dispatch.live import LINK, REPLICA, SLOT
from pointsman.dispatch.record import Accounts, Snapshot
from pointsman.policies.in_flight import ACCOUNT, FLIGHT, LONGEST_OUTPUT, NONE

Columns = dict[str, NDArray[Any]]
Kinds = dict[str, "np.dtype[Any]"]

_LINKS = {"oldest", "newest", "counts", "older", "newer", "place"}
_FACTS = {*IterationCosts.__struct_fields__, "max_num_seqs", "kv_tokens"}


def _kinds(record: np.dtype[Any], left_out: set[str]) -> Kinds:
    """The columns of a record, little-endian."""
    names = (name for name in record.names or () if name not in left_out)
    return {name: record[name].newbyteorder("<") for name in names}


_OF_ACCOUNT, _OF_REPLICA = _kinds(ACCOUNT, _LINKS), _kinds(REPLICA, _FACTS)
_OF_FLIGHT, _OF_SLOT = _kinds(FLIGHT, _LINKS), _kinds(SLOT, _LINKS)
_OF_REPLICAS = {**_OF_REPLICA, **_OF_ACCOUNT, "awaited_work_ms": np.dtype("<f8")}
_OF_REQUESTS: Kinds = {
    "sequence": np.dtype("<i8"),
    "decoding": np.dtype("u1"),
    **_OF_SLOT,
    **_OF_FLIGHT,
}
_HELD: Kinds = {
    "sequence": np.dtype("<i8"),
    "replica": np.dtype("<i4"),
    "work_ms": np.dtype("<f8"),
    "uncached_tokens": np.dtype("<i4"),
    "prompt_tokens": np.dtype("<i4"),
}
_PAIRS: Kinds = {"factor": np.dtype("<f8")}
_LINK = _kinds(LINK, {"moves_all"})
_ANSWERS: Kinds = {
    "tokens": np.dtype("<i4"),
    "count": np.dtype("<f8"),
    "ended_by": np.dtype("<f8"),
}


def snapshot_of(ledger: Ledger, now_ms: float) -> Snapshot:
    """What the ledger holds; the log says which file it begins, and who had joined."""
    return Snapshot(
        time_ms=now_ms,
        file=2,
        next_sequence=ledger.next_number,
        joined=[],
        accounts=_accounts(ledger),
    )


def restore(ledger: Ledger, snapshot: Snapshot) -> dict[int, int]:
    """Make an idle ledger of the same replicas one that holds the same; slots by sequence.

    ``check_snapshot`` has found nothing wrong.
    """
    given = snapshot.accounts
    of_replicas = _read(given.of_replicas, _OF_REPLICAS)
    requests = _read(given.of_requests, _OF_REQUESTS)
    slots = {number: ledger.reserve(number) for number in requests["sequence"].tolist()}
    assert list(slots.values()) == list(range(len(slots))), "the ledger was idle"
    known = ledger.live.in_flight
    for name in _OF_REPLICA:
        ledger.live.replicas[name][: ledger.count] = of_replicas[name]
    for name in _OF_ACCOUNT:
        known.accounts[name][: ledger.count] = of_replicas[name]
    for name in _OF_SLOT:
        ledger.live.slots[name][: len(slots)] = requests[name]
    for name in _OF_FLIGHT:
        known.flights[name][: len(slots)] = requests[name]
    _link(ledger, requests["replica"], requests["decoding"] > 0)
    _restore_held(ledger, _read(given.held, _HELD), of_replicas["awaited_work_ms"])
    ledger.next_number = snapshot.next_sequence
    known.finished[:], known.sent[:] = given.finished, given.sent
    _restore_answers(ledger, _read(given.answers, _ANSWERS))
    if not isinstance(given.pairs, msgspec.UnsetType):
        ledger.live.pairs["factor"] = _read(given.pairs, _PAIRS)["factor"]
    if not isinstance(given.link, msgspec.UnsetType):
        for name, column in _read(given.link, _LINK).items():
            ledger.live.link[name] = column
    return slots


def sequences_of(snapshot: Snapshot) -> list[int]:
    """The choices whose requests were in flight."""
    numbers = np.frombuffer(snapshot.accounts.of_requests["sequence"], _OF_REQUESTS["sequence"])
    return numbers[numbers >= 0].tolist()  # type: ignore[no-any-return]


def held_in(snapshot: Snapshot) -> list[int]:
    """The sequences of those that the router held back."""
    return np.frombuffer(snapshot.accounts.held["sequence"], _HELD["sequence"]).tolist()  # type: ignore[no-any-return]


def check_snapshot(snapshot: Snapshot, replicas: int, where: str, pairs: int = 0) -> None:
    """Raises InputError for a snapshot that no router of so many replicas, and pairs of them, can
    have written."""
    given = snapshot.accounts
    _check_pairs(given, pairs, where)
    of_replicas = _read(given.of_replicas, _OF_REPLICAS, f"{where}: of_replicas")
    if len(of_replicas["requests"]) != replicas:
        raise wrong_value(where, "of_replicas", len(of_replicas["requests"]), f"{replicas} values")
    requests = _read(given.of_requests, _OF_REQUESTS, f"{where}: of_requests")
    _check_requests(requests, replicas, where)
    decoding = requests["replica"][requests["decoding"] > 0]
    for name, of_whom in (("requests", requests["replica"]), ("decoding", decoding)):
        counted = np.bincount(of_whom, minlength=replicas)
        if (of_replicas[name] != counted).any():
            told = of_replicas[name].tolist()
            raise wrong_value(where, name, told, f"{counted.tolist()}, as in of_requests")
    held = _read(given.held, _HELD, f"{where}: held")
    numbers = requests["sequence"]
    decodes = numbers[numbers >= 0]
    if not np.isin(~numbers[numbers < 0], decodes).all() or (
        len(decodes) < len(numbers) and not pairs
    ):
        raise wrong_value(
            where, "sequence", numbers.tolist(), "prefills of requests that are there"
        )
    _check_numbers(snapshot, held["sequence"].tolist() + decodes.tolist(), where)
    if not ((held["replica"] >= 0) & (held["replica"] < replicas)).all():
        wanted = f"numbers in 0..{replicas - 1}"
        raise wrong_value(where, "held for", held["replica"].tolist(), wanted)
    lengths = _read(given.answers, _ANSWERS, f"{where}: answers")["tokens"].tolist()
    if lengths != sorted({min(max(length, 0), LONGEST_OUTPUT) for length in lengths}):
        raise wrong_value(where, "tokens", lengths, f"rising numbers in 0..{LONGEST_OUTPUT}")


def _check_pairs(given: Accounts, pairs: int, where: str) -> None:
    for name, kinds, count in (("pairs", _PAIRS, pairs), ("link", _LINK, min(pairs, 1))):
        columns = getattr(given, name)
        told = {} if isinstance(columns, msgspec.UnsetType) else columns
        found = len(next(iter(_read(told, kinds, f"{where}: {name}").values()))) if told else 0
        if found != count:
            raise wrong_value(where, name, f"{found} values", str(count))


def _accounts(ledger: Ledger) -> Accounts:
    live, known = ledger.live, ledger.live.in_flight
    rows, sequences = _in_order(ledger)
    requests = {"sequence": sequences, "decoding": live.slots["place"][rows] >= 0}
    # Field by field: taking whole records out of an array is ten times as slow.
    requests |= {name: live.slots[name][rows] for name in _OF_SLOT}
    requests |= {name: known.flights[name][rows] for name in _OF_FLIGHT}
    of_replicas = {name: live.replicas[name][: ledger.count] for name in _OF_REPLICA}
    of_replicas |= {name: known.accounts[name][: ledger.count] for name in _OF_ACCOUNT}
    of_replicas["awaited_work_ms"] = live.awaited["work_ms"][: ledger.count]
    lengths = np.flatnonzero(known.output_counts)
    answers = {
        "tokens": lengths,
        "count": known.output_counts[lengths],
        "ended_by": known.ended_by[lengths],
    }
    finished, lacking, tokens = known.finished.tolist()
    sent, work_us = known.sent.tolist()
    return Accounts(
        of_replicas=_packed(of_replicas, _OF_REPLICAS),
        of_requests=_packed(requests, _OF_REQUESTS),
        held=_packed(_held(ledger), _HELD),
        answers=_packed(answers, _ANSWERS),
        finished=(finished, lacking, tokens),
        sent=(sent, work_us),
        **_of_pairs(ledger),
    )


def _of_pairs(ledger: Ledger) -> dict[str, dict[str, bytes]]:
    live = ledger.live
    if not len(live.pairs):
        return {}
    link = {name: live.link[name] for name in _LINK}
    factors = {"factor": live.pairs["factor"]}
    return {"pairs": _packed(factors, _PAIRS), "link": _packed(link, _LINK)}


def _in_order(ledger: Ledger) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Slots in use, in the order of the module's docstring, and the numbers of their requests."""
    count = len(ledger.numbers)
    rows = np.fromiter(ledger.numbers.keys(), np.int64, count)
    sequences = np.fromiter(ledger.numbers.values(), np.int64, count)
    places, replicas = (ledger.live.slots[name][rows] for name in ("place", "replica"))
    decoding = places >= 0
    sent = np.maximum(sequences, ~sequences)  # whoever was sent later is newer
    within = np.where(decoding, places, sent)
    order = np.lexsort((within, decoding, replicas))
    return rows[order], sequences[order]


def _link(ledger: Ledger, replica: NDArray[Any], decoding: NDArray[Any]) -> None:
    """Put rows 0, 1, ... into the chain of those without a first token, and into ``running``."""
    known, rows = ledger.live.in_flight, np.arange(len(replica), dtype=np.int32)
    flights, accounts = known.flights, known.accounts
    pending, running = rows[~decoding], rows[decoding]
    follows = replica[pending][1:] == replica[pending][:-1]
    flights["older"][pending] = flights["newer"][pending] = NONE
    flights["older"][pending[1:][follows]] = pending[:-1][follows]
    flights["newer"][pending[:-1][follows]] = pending[1:][follows]
    first = np.concatenate(([True], ~follows))[: len(pending)]
    last = np.concatenate((~follows, [True]))[: len(pending)]
    accounts["oldest"][replica[pending[first]]] = pending[first]
    accounts["newest"][replica[pending[last]]] = pending[last]
    counts = np.bincount(replica[running], minlength=len(accounts)).astype(np.int32)
    before = np.cumsum(counts) - counts
    places = np.arange(len(running), dtype=np.int32) - before[replica[running]]
    accounts["counts"] = counts
    known.running[replica[running], places] = running
    slots = ledger.live.slots
    slots["place"][pending] = -1
    slots["place"][running] = places


def _held(ledger: Ledger) -> Columns:
    rows = [(number, replica, *needs) for number, (replica, needs) in ledger.held.items()]
    columns = zip(*rows, strict=True) if rows else [()] * len(_HELD)
    return {name: np.array(column) for name, column in zip(_HELD, columns, strict=True)}


def _restore_held(ledger: Ledger, held: Columns, work_ms: NDArray[Any]) -> None:
    columns = [held[name].tolist() for name in _HELD]
    for number, replica, *needs in zip(*columns, strict=True):
        ledger.next_number = number
        ledger.hold(replica, Needs(*needs))
    ledger.live.awaited["work_ms"][: ledger.count] = work_ms


def _restore_answers(ledger: Ledger, answers: Columns) -> None:
    known, lengths = ledger.live.in_flight, answers["tokens"]
    known.output_counts[lengths] = answers["count"]
    # Between two lengths that answers had, the fraction is that of the shorter one.
    shorter = np.searchsorted(lengths, np.arange(LONGEST_OUTPUT + 1), side="right")
    known.ended_by[:] = np.concatenate(([0.0], answers["ended_by"]))[shorter]


def _packed(columns: Columns, kinds: Kinds) -> dict[str, bytes]:
    return {name: columns[name].astype(kind, copy=False).tobytes() for name, kind in kinds.items()}


def _read(columns: dict[str, bytes], kinds: Kinds, where: str = "") -> Columns:
    """Raises InputError for other columns, and for ones of different lengths."""
    if columns.keys() != kinds.keys():
        found = ", ".join(columns) or "no column"
        raise InputError(f"{where} has {found}; expected {', '.join(kinds)}")
    first = next(iter(kinds))
    count = len(columns[first]) // kinds[first].itemsize
    for name, kind in kinds.items():
        if len(columns[name]) != count * kind.itemsize:
            wanted = f"{count * kind.itemsize}: {count} values of {kind.itemsize}"
            raise wrong_value(where, f"bytes of {name}", len(columns[name]), wanted)
    return {name: np.frombuffer(columns[name], kind) for name, kind in kinds.items()}


def _check_requests(requests: Columns, replicas: int, where: str) -> None:
    replica, decoding = requests["replica"], requests["decoding"]
    if not ((replica >= 0) & (replica < replicas)).all():
        raise wrong_value(where, "replica", replica.tolist(), f"numbers in 0..{replicas - 1}")
    if (decoding > 1).any() or (np.diff(2 * replica.astype(np.int64) + decoding) < 0).any():
        wanted = "0 and 1, by replica, those that decode last"
        raise wrong_value(where, "decoding", decoding.tolist(), wanted)


def _check_numbers(snapshot: Snapshot, numbers: list[int], where: str) -> None:
    is_known = all(0 <= number < snapshot.next_sequence for number in numbers)
    if not is_known or len(set(numbers)) != len(numbers):
        wanted = f"different numbers in 0..{snapshot.next_sequence - 1}"
        raise wrong_value(where, "sequence", numbers, wanted)
