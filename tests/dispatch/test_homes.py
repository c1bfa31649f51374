import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.core.errors import InputError
from pointsman.dispatch.homes import NOWHERE, Homes


def test_the_home_of_a_session_is_where_its_last_request_went():
    homes = Homes()
    assert homes.of("a", 0.0) == NOWHERE
    homes.settle("a", 0, 0.0)
    homes.settle("a", 1, 1.0)
    assert homes.of("a", 2.0) == 1
    assert homes.of(None, 2.0) == NOWHERE


def test_the_session_that_was_quiet_longest_is_forgotten_first():
    homes = Homes(max_sessions=2)
    for session in ("a", "b", "a", "c"):
        homes.settle(session, 0, 0.0)
    assert [homes.of(session, 0.0) for session in "abc"] == [0, NOWHERE, 0]


def test_a_session_has_its_home_until_its_time_is_up_after_its_last_request():
    homes = Homes(ttl_ms=100.0)
    homes.settle("a", 1, 0.0)
    assert [homes.of("a", 100.0), homes.of("a", 100.5)] == [1, NOWHERE]
    homes.settle("a", 0, 100.5)
    assert homes.of("a", 200.0) == 0


def test_sessions_whose_time_is_up_take_no_memory():
    homes = Homes(ttl_ms=100.0)
    for number in range(1000):
        homes.settle(str(number), 0, float(number))
    assert len(homes) == 101  # those settled from 899 to 999


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(0, 2), st.integers(0, 60)), max_size=30
    ),
    st.integers(1, 3),
)
def test_homes_are_those_of_the_last_sessions_within_their_time(events, most):
    homes, now, plain = Homes(most, 50.0), 0, []
    for session, replica, later in events:
        now += later
        homes.settle(session, replica, float(now))
        plain = [event for event in plain if event[0] != session] + [(session, replica, now)]
        last = {name: home for name, home, since in plain[-most:] if now - since <= 50}
        assert {name: homes.of(name, float(now)) for name in last} == last
        assert len(homes) == len(last)


@pytest.mark.parametrize("ttl_ms", [0.0, -1.0, float("nan")])
def test_a_time_that_is_none_is_refused(ttl_ms):
    with pytest.raises(InputError, match="sessions: ttl_ms is"):
        Homes(ttl_ms=ttl_ms)
