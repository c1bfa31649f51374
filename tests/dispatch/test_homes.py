from pointsman.dispatch.homes import NOWHERE, Homes


def test_the_home_of_a_session_is_where_its_last_request_went():
    homes = Homes()
    assert homes.of("a") == NOWHERE
    homes.settle("a", 0)
    homes.settle("a", 1)
    assert homes.of("a") == 1
    assert homes.of(None) == NOWHERE


def test_the_session_that_was_quiet_longest_is_forgotten_first():
    homes = Homes(max_sessions=2)
    for session in ("a", "b", "a", "c"):
        homes.settle(session, 0)
    assert [homes.of(session) for session in "abc"] == [0, NOWHERE, 0]
