import numpy as np
import pytest

from pointsman.core.errors import InputError
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.homes import NOWHERE
from pointsman.dispatch.ledger import Ledger
from pointsman.dispatch.view import Situation, decide
from pointsman.policies.policy import REQUESTS, ROWS, Policy, policy

NOTHING = Ledger([ReplicaFacts()]).known
UNFILLED = np.full((ROWS - 3, 2), np.nan)


def situation(**changes) -> Situation:
    fields = {
        "now_ms": 100.0,
        "prompt_tokens": 8,
        "sequence": 0,
        "home": NOWHERE,
        "random": 0.5,
        "key": 0,
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


def test_a_policy_sees_nan_in_the_rows_that_it_does_not_read():
    assert decide(probe("queue"), situation(), NOTHING).candidate == 0
    assert decide(probe("requests"), situation(), NOTHING).candidate == 1


def test_the_home_is_handed_over_as_a_candidate():
    assert decide(probe("requests", "session"), situation(home=3), NOTHING).reason == 1


@pytest.mark.parametrize("home", [NOWHERE, 0, 1])
def test_a_home_that_is_no_candidate_is_none(home):
    assert decide(probe("requests", "session"), situation(home=home), NOTHING).reason == 0


def test_a_policy_that_does_not_read_sessions_sees_no_home():
    assert decide(probe("requests"), situation(home=3), NOTHING).reason == 0


def test_deciding_leaves_the_situation_as_it_is():
    given = situation()
    decide(probe(), given, NOTHING)
    assert not np.isnan(given.view[:3]).any()


def test_a_choice_outside_the_candidates_is_an_error_that_names_the_policy():
    @policy(rule="-", source="-", reasons=("-",))
    def beyond(request, view, parameters):
        return 2, 0

    with pytest.raises(InputError, match=r"policy beyond chose candidate 2 .* in 0\.\.1"):
        decide(beyond, situation(), NOTHING)
