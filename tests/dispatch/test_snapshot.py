"""The accounts as a line of the log: worked out by hand, and made again under any events."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.core.errors import InputError
from pointsman.costs.iteration import IterationCosts
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.ledger import Asked, Ledger, Needs
from pointsman.dispatch.record import Accounts, Line, Snapshot
from pointsman.dispatch.snapshot import check_snapshot, restore, snapshot_of
from pointsman.policies.policy import ROWS

# An iteration takes 10 ms and 1 for each that decodes, a prompt token 1 ms.
FACTS = ReplicaFacts(IterationCosts(10.0, 1.0, 1.0, 0.0), max_num_seqs=3, kv_tokens=10_000)


def column(group: dict[str, bytes], name: str, kind: str = "<f8") -> list[float]:
    return np.frombuffer(group[name], kind).tolist()


def small() -> Ledger:
    """Request 0 ended, 1 decodes on replica 1, 2 and 3 wait for their first token on replica 0."""
    ledger = Ledger([FACTS, FACTS])
    first = ledger.send(0, (50, 50), 0.0, True)
    ledger.end(first, 8, 1.0)
    decoding = ledger.send(1, (40, 30), 2.0, True)
    ledger.send(0, (20, 20), 3.0, True)
    ledger.send(0, (10, 5), 4.0, False)
    ledger.first_token(decoding, 5.0)
    ledger.read(1, (4.0, 3.0, 0.5), 6.0)
    return ledger


def reborn(snapshot: Snapshot, replicas: int) -> tuple[Ledger, dict[int, int]]:
    """A ledger made of what was written and read again."""
    line = msgspec.json.decode(msgspec.json.encode(snapshot), type=Line)
    check_snapshot(line, replicas, "here")
    ledger = Ledger([FACTS] * replicas)
    slots = restore(ledger, line)
    ledger.check_invariants()
    return ledger, slots


def test_requests_stand_by_replica_those_without_a_first_token_first():
    accounts = snapshot_of(small(), 7.0).accounts
    assert column(accounts.of_requests, "sequence", "<i8") == [2, 3, 1]
    assert column(accounts.of_requests, "replica", "<i4") == [0, 0, 1]
    assert column(accounts.of_requests, "decoding", "u1") == [0, 0, 1]
    assert column(accounts.of_requests, "prompt_tokens", "<i4") == [20, 10, 40]
    assert column(accounts.of_requests, "uncached_tokens", "<i4") == [20, 5, 30]
    assert column(accounts.of_requests, "tokens_out", "<i4") == [0, 0, 1]
    assert column(accounts.of_requests, "sent_ms") == [3.0, 4.0, 2.0]


def test_what_replicas_have_and_said_and_how_long_answers_were_is_in_it():
    snapshot = snapshot_of(small(), 7.0)
    accounts = snapshot.accounts
    assert (snapshot.time_ms, snapshot.next_sequence) == (7.0, 4)
    assert column(accounts.of_replicas, "requests") == [2, 1]
    assert column(accounts.of_replicas, "pending_tokens") == [25, 0]
    assert column(accounts.of_replicas, "context_tokens") == [30, 41]
    assert column(accounts.of_replicas, "kv_use")[1] == 0.5
    assert np.isnan(column(accounts.of_replicas, "kv_use")[0])
    assert column(accounts.answers, "tokens", "<i4") == [8]
    assert column(accounts.answers, "count") == column(accounts.answers, "ended_by") == [1.0]
    assert accounts.finished == (1, 0, 8)


def test_those_that_the_router_holds_are_in_it_and_numbered_with_the_others():
    ledger = small()
    assert ledger.hold(1, Needs(30.5, 20, 60)) == 4
    snapshot = snapshot_of(ledger, 7.0)
    assert snapshot.next_sequence == 5
    assert column(snapshot.accounts.held, "sequence", "<i8") == [4]
    assert column(snapshot.accounts.held, "replica", "<i4") == [1]
    assert column(snapshot.accounts.held, "work_ms") == [30.5]
    assert column(snapshot.accounts.of_replicas, "awaited_work_ms") == [0.0, 30.5]
    again, _ = reborn(snapshot, 2)
    assert again.held == {4: (1, Needs(30.5, 20, 60))}
    again.let_go(4)
    assert again.held_for(1) == 0


def test_an_idle_router_has_a_snapshot_too():
    ledger, slots = reborn(snapshot_of(Ledger([FACTS]), 0.0), 1)
    assert (slots, ledger.in_flight, ledger.next_number) == ({}, 0, 0)


def view(ledger: Ledger, now_ms: float) -> str:
    """As text, so that NaN equals NaN and every bit counts."""
    views = np.empty((ROWS, ledger.count)), np.empty((ROWS, ledger.count))
    everyone = np.arange(ledger.count, dtype=np.int32)
    ledger.fill(Asked(now_ms, (100, (1 << ROWS) - 1), everyone, views))
    return views[0].tobytes().hex()


STEPS = st.tuples(
    st.sampled_from(("send", "send", "send", "first", "end", "end", "read", "hold", "let go")),
    st.integers(0, 10_000),
    st.floats(0.0, 90.0, allow_nan=False),
)


class Driven:
    """A ledger that steps are taken on, by the numbers of its requests."""

    def __init__(self, ledger: Ledger, slots: dict[int, int]) -> None:
        self.ledger, self.slots = ledger, slots

    def take(self, step: tuple[str, int, float], now_ms: float) -> str:
        kind, number, _ = step
        ledger = self.ledger
        if kind == "send":
            sequence = ledger.next_number
            tokens = (number % 300 + 1, number % 200 % (number % 300 + 1) + 1)
            self.slots[sequence] = ledger.send(number % 3, tokens, now_ms, number % 4 > 0)
        elif kind == "read":
            told = (float(number % 5), float(number % 7), (number % 11) / 10)
            ledger.read(number % 3, told if number % 2 else (np.nan,) * 3, now_ms)
        elif kind == "hold":
            ledger.hold(number % 3, Needs(number / 7, number % 50, number % 90))
        elif kind == "let go":
            if ledger.held:
                ledger.let_go(sorted(ledger.held)[number % len(ledger.held)])
        elif self.slots:
            sequence = sorted(self.slots)[number % len(self.slots)]
            if kind == "first":
                ledger.first_token(self.slots[sequence], now_ms)
            else:
                slot = self.slots.pop(sequence)
                ledger.end(slot, number % 400 if number % 3 else None, now_ms)
        return view(ledger, now_ms)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=60), st.integers(0, 59))
def test_what_is_made_again_goes_on_bit_for_bit_as_what_it_was_made_of(steps, cut):
    original, now_ms = Driven(Ledger([FACTS] * 3), {}), 0.0
    again = None
    for number, step in enumerate(steps):
        if number == min(cut, len(steps) - 1):
            again = Driven(*reborn(snapshot_of(original.ledger, now_ms), 3))
            assert again.slots.keys() == original.slots.keys()
            assert again.ledger.held == original.ledger.held
        now_ms += step[2]
        seen = original.take(step, now_ms)
        if again is not None:
            assert again.take(step, now_ms) == seen
            assert snapshot_of(again.ledger, now_ms) == snapshot_of(original.ledger, now_ms)
    again.ledger.check_invariants()


def test_more_requests_than_a_new_ledger_has_room_for_are_made_again():
    ledger = Ledger([FACTS] * 2)
    slots = [ledger.send(k % 2, (10, 10), float(k), True) for k in range(700)]
    for slot in slots[::3]:
        ledger.first_token(slot, 800.0)
    for slot in slots[1::3]:
        ledger.end(slot, 5, 900.0)
    snapshot = snapshot_of(ledger, 900.0)
    again, _ = reborn(snapshot, 2)
    assert again.in_flight == 700 - 233
    assert snapshot_of(again, 900.0) == snapshot
    assert view(again, 901.0) == view(ledger, 901.0)


def packed(kind: str, *values: float) -> bytes:
    return np.array(values, dtype=kind).tobytes()


@pytest.mark.parametrize(
    ("group", "name", "value", "message"),
    [
        (
            "of_requests",
            "replica",
            packed("<i4", 0, 0, 2),
            r"replica is \[0, 0, 2\]; expected numb",
        ),
        ("of_requests", "replica", packed("<i4", -1, 0, 1), r"replica is \[-1, 0, 1\]"),
        ("of_requests", "replica", packed("<i4", 1, 0, 1), r"decoding is .* expected .*by replica"),
        ("of_requests", "decoding", packed("u1", 0, 0, 2), r"decoding is \[0, 0, 2\]"),
        ("of_requests", "decoding", packed("u1", 1, 0, 1), r"decoding is \[1, 0, 1\]"),
        (
            "of_requests",
            "decoding",
            packed("u1", 0, 0, 0),
            r"decoding is \[0.0, 1.0\]; expected \[",
        ),
        (
            "of_requests",
            "sequence",
            packed("<i8", 2, 2, 1),
            r"sequence is \[2, 2, 1\]; expected dif",
        ),
        ("of_requests", "sequence", packed("<i8", 2, 4, 1), r"numbers in 0\.\.3"),
        ("of_requests", "sent_ms", b"12", "bytes of sent_ms is 2; expected 24: 3 values of 8"),
        ("of_requests", "colour", b"", "of_requests has .*colour; expected sequence, decoding"),
        ("of_replicas", "requests", packed("<f8", 2, 2), r"requests is \[2.0, 2.0\]; expected \["),
        ("answers", "tokens", packed("<i4", -1), r"tokens is \[-1\]; expected rising numbers"),
        ("answers", "tokens", packed("<i4", 1 << 20), r"tokens is \[1048576\]"),
    ],
)
def test_a_snapshot_that_no_router_wrote_is_refused(group, name, value, message):
    snapshot = snapshot_of(small(), 7.0)
    columns = {**getattr(snapshot.accounts, group), name: value}
    accounts = msgspec.structs.replace(snapshot.accounts, **{group: columns})
    with pytest.raises(InputError, match=f"here.*{message}"):
        check_snapshot(msgspec.structs.replace(snapshot, accounts=accounts), 2, "here")


def test_a_snapshot_of_another_number_of_replicas_is_refused():
    with pytest.raises(InputError, match="of_replicas is 2; expected 3 values"):
        check_snapshot(snapshot_of(small(), 7.0), 3, "here")


def test_columns_that_are_missing_are_named():
    nothing = Accounts({}, {}, {}, {}, (0, 0, 0))
    snapshot = Snapshot(0.0, 2, 0, [], nothing)
    with pytest.raises(InputError, match="here: of_replicas has no column; expected prefill_"):
        check_snapshot(snapshot, 1, "here")
