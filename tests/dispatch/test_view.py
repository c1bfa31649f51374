import numpy as np
import pytest

from pointsman.core.errors import InputError
from pointsman.dispatch.ledger import NOWHERE, Ledger
from pointsman.dispatch.view import Situation, decide, view_of, wait_ms
from pointsman.policies.policy import CACHED_TOKENS, FREE_AT_MS, REQUESTS, ROWS, Policy, policy

UNFILLED = np.full((ROWS - 3, 2), np.nan)


def situation(**changes) -> Situation:
    fields = {
        "now_ms": 100.0,
        "prompt_tokens": 8,
        "sequence": 0,
        "home": NOWHERE,
        "random": 0.5,
        "candidates": [1, 3],
        "view": np.vstack(([[100.0, 104.0], [0.0, 2.0], [0.0, 64.0]], UNFILLED)),
    }
    return Situation(**{**fields, **changes})


def probe(*reads: str):
    """A policy whose reason is 1 where the request's home is the second candidate.

    It looks at what it does not read, which the decorator would refuse.
    """

    def function(request, view, parameters):
        return 0 if np.isnan(view[REQUESTS, 1]) else 1, 1 if request.home == 1 else 0

    reasons = ("elsewhere", "home")
    return Policy("probe", "-", "-", function, reasons, reads=frozenset(reads))


def test_the_view_has_a_column_for_each_candidate_and_no_other_replica():
    ledger = Ledger(4)
    ledger.reserve(1, 20.0)
    ledger.reserve(3, 5.0)
    ledger.reserve(2, 99.0)
    cached = np.array([0.0, 64.0, 640.0, 0.0])
    view = view_of(ledger, cached, [1, 3], now_ms=1000.0)
    assert view[FREE_AT_MS].tolist() == [1020, 1005]
    assert view[REQUESTS].tolist() == [1, 1]
    assert view[CACHED_TOKENS].tolist() == [64, 0]


def test_an_idle_replica_is_free_now():
    assert view_of(Ledger(1), np.zeros(1), [0], now_ms=7.25)[FREE_AT_MS].tolist() == [7.25]


def test_a_policy_sees_nan_in_the_rows_that_it_does_not_read():
    assert decide(probe("queue"), situation()).candidate == 0
    assert decide(probe("requests"), situation()).candidate == 1


def test_the_home_is_handed_over_as_a_candidate():
    assert decide(probe("requests", "session"), situation(home=3)).reason == 1


@pytest.mark.parametrize("home", [NOWHERE, 0, 1])
def test_a_home_that_is_no_candidate_is_none(home):
    assert decide(probe("requests", "session"), situation(home=home)).reason == 0


def test_a_policy_that_does_not_read_sessions_sees_no_home():
    assert decide(probe("requests"), situation(home=3)).reason == 0


def test_deciding_leaves_the_situation_as_it_is():
    given = situation()
    decide(probe(), given)
    assert not np.isnan(given.view[:3]).any()


def test_a_choice_outside_the_candidates_is_an_error_that_names_the_policy():
    @policy(rule="-", source="-", reasons=("-",))
    def beyond(request, view, parameters):
        return 2, 0

    with pytest.raises(InputError, match=r"policy beyond chose candidate 2 .* in 0\.\.1"):
        decide(beyond, situation())


def test_the_wait_at_a_candidate_is_never_negative():
    assert wait_ms(situation(), 1) == 4.0
    assert wait_ms(situation(now_ms=200.0), 1) == 0.0
