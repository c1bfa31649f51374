import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.dispatch.ledger import NOWHERE, Ledger

works_ms = st.floats(min_value=0, max_value=1e6, allow_nan=False)


def test_a_reservation_counts_until_it_is_freed():
    ledger = Ledger(2)
    reservation = ledger.reserve(1, 12.5)
    assert ledger.requests.tolist() == [0, 1]
    assert ledger.outstanding_ms.tolist() == [0, 12.5]
    assert reservation.free()
    assert ledger.requests.tolist() == [0, 0]
    assert ledger.outstanding_ms.tolist() == [0, 0]


def test_a_reservation_is_freed_only_once():
    ledger = Ledger(1)
    ledger.reserve(0, 1.0)
    second = ledger.reserve(0, 2.0)
    assert [second.free(), second.free(), second.free()] == [True, False, False]
    assert ledger.in_flight == 1


@given(st.lists(st.tuples(st.integers(0, 2), works_ms, st.booleans())), st.randoms())
def test_counters_are_sums_of_what_is_in_flight_and_end_at_exactly_zero(requests, random):
    ledger = Ledger(3)
    open_ones = []
    for replica, work_ms, also_frees in requests:
        open_ones.append(ledger.reserve(replica, work_ms))
        if also_frees:
            open_ones.pop(random.randrange(len(open_ones))).free()
        ledger.check_invariants()
        assert ledger.in_flight == len(open_ones)
        expected_ms = sum(one.work_ms for one in open_ones)
        assert ledger.outstanding_ms.sum() == pytest.approx(expected_ms, abs=1e-6)
    for one in open_ones:
        one.free()
    assert ledger.requests.tolist() == [0, 0, 0]
    assert ledger.outstanding_ms.tolist() == [0, 0, 0]


def test_the_home_of_a_session_is_where_its_last_request_went():
    ledger = Ledger(2)
    assert ledger.home("a") == NOWHERE
    ledger.settle("a", 0)
    ledger.settle("a", 1)
    assert ledger.home("a") == 1
    assert ledger.home(None) == NOWHERE


def test_the_session_that_was_quiet_longest_is_forgotten_first():
    ledger = Ledger(1, max_sessions=2)
    for session in ("a", "b", "a", "c"):
        ledger.settle(session, 0)
    assert [ledger.home(session) for session in "abc"] == [0, NOWHERE, 0]
