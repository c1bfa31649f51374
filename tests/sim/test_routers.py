"""Several routers before one fleet: what each knows of what the others sent, worked out by hand.

An iteration takes 10 ms, 1 a prefill token and 1 a decoding request. Prompts of 100 tokens fit
replica 0 alone.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pointsman import POLICIES, InputError, workload_of_columns
from pointsman.policies.policy import CACHED_TOKENS, REQUESTS, policy
from pointsman.sim.batching import BatchingFleet, fleet_state, simulate_fleet
from pointsman.sim.conditions import Conditions, Holding
from pointsman.sim.knowledge import Signals
from pointsman.sim.routers import Routers
from tests.small_fleets import ENGINE, alike, asked

ONE_IS_SMALL = BatchingFleet((ENGINE, replace(ENGINE, kv_blocks=10)))
NEVER_MS = 1e12
BIG = (100, 50)
SMALL = (5, 2)


@policy(
    rule="Fewest requests, the first of them.",
    source="these tests",
    reasons=("fewest",),
    reads=("requests",),
)
def fewest(request, view, parameters):
    best = 0
    for c in range(view.shape[1]):
        if view[REQUESTS, c] < view[REQUESTS, best]:
            best = c
    return best, 0


@policy(rule="Most of the prompt, else in turn.", source="these tests", reasons=("most",))
def most_cached(request, view, parameters):
    best = request.sequence % view.shape[1]
    for c in range(view.shape[1]):
        if view[CACHED_TOKENS, c] > view[CACHED_TOKENS, best]:
            best = c
    return best, 0


@policy(
    rule="Where the session was, else in turn.",
    source="these tests",
    reasons=("home",),
    reads=("session",),
)
def at_home(request, view, parameters):
    return (request.home if request.home >= 0 else request.sequence % view.shape[1]), 0


@policy(rule="The first.", source="these tests", reasons=("first",), reads=("queue", "work"))
def the_first(request, view, parameters):
    return 0, 0


def seed_that_deals(workload, fleet, wanted: str) -> int:
    """One by which requests come to the routers A and B in this order."""
    numbers = ["AB".index(letter) for letter in wanted]
    for seed in range(10_000):
        state = fleet_state(workload, fleet, Signals(), Routers(2), seed)
        if state.questions["router"].tolist() == numbers:
            return seed
    raise AssertionError(wanted)


def replicas(workload, rule, fleet, wanted: str, signals: Signals | None = None) -> list[int]:
    return run(workload, rule, fleet, wanted, signals).replica.tolist()


def run(workload, rule, fleet, wanted: str, signals: Signals | None = None):
    conditions = Conditions(signals or Signals(), routers=Routers(2))
    seed = seed_that_deals(workload, fleet, wanted)
    return simulate_fleet(workload, rule, fleet, conditions, seed)


def test_each_router_takes_turns_by_itself():
    requests = asked(*((float(k), *SMALL) for k in range(6)))
    found = replicas(requests, POLICIES["round_robin"], alike(2), "AABABB")
    assert found == [0, 1, 0, 0, 1, 0]


def test_what_others_sent_is_seen_in_current_gauges_but_for_one_request():
    """A has three on replica 0, of which B sees two; with one there B sees none."""
    three = asked(*((float(k), *BIG) for k in range(3)), (5, *SMALL))
    assert replicas(three, fewest, ONE_IS_SMALL, "AAAB") == [0, 0, 0, 1]
    one = asked((0, *BIG), (5, *SMALL))
    assert replicas(one, fewest, ONE_IS_SMALL, "AB") == [0, 0]
    assert replicas(one, fewest, ONE_IS_SMALL, "AA") == [0, 1]


def test_without_gauges_nobody_sees_what_others_sent():
    requests = asked(*((float(k), *BIG) for k in range(3)), (5, *SMALL), (6, *SMALL))
    never = Signals(metrics_age_ms=NEVER_MS)
    assert replicas(requests, fewest, ONE_IS_SMALL, "AAABB", never) == [0, 0, 0, 0, 1]


def test_others_are_seen_as_old_as_the_gauges_are():
    """Replica 0 is read at 0, 100 and 200 ms; the three are there from 1 to 3 ms on."""
    requests = asked(*((float(k), *BIG) for k in (1, 2, 3)), (50, *SMALL), (150, *SMALL))
    old = Signals(metrics_age_ms=100.0)
    assert replicas(requests, fewest, ONE_IS_SMALL, "AAABB", old) == [0, 0, 0, 0, 1]


def test_own_requests_are_not_counted_again_when_the_gauges_show_them():
    """At 150 ms A and B have two each on replica 0: A counts its own two and one of B's, so that
    three go to replica 1 before another goes there."""
    requests = asked(*((float(k), *BIG) for k in range(4)), *((150.0 + k, 5, 20) for k in range(8)))
    found = replicas(requests, fewest, ONE_IS_SMALL, "ABAB" + "AAAAAAAA")
    assert found == [0, 0, 0, 0, 1, 1, 1, 0, 1, 0, 1, 0]


def test_others_that_wait_are_priced_as_the_mean_of_those_sent_but_for_one():
    """The first of A's four runs until 110 ms, three wait. B sees two of them at 5 ms, each of 100
    ms as all that were sent; at 6 ms B's own one waits too, 5 ms of prefill of which 1 ms may be
    done, and A's two, of (4 x 100 + 5) / 5 ms now."""
    requests = asked(*((float(k), *BIG) for k in range(4)), (5, *SMALL), (6, *SMALL))
    assert run(requests, the_first, alike(1), "AAAABB").expected_wait_ms[4:].tolist() == [
        200.0,
        4.0 + 2 * 81.0,
    ]


def test_others_that_wait_are_priced_and_those_that_run_take_seats():
    """One seat: of A's four on replica 0 one runs and three wait. B sees two waiting (200 ms of
    prefill) and one running, so that it lacks three seats: 3 x 16 tokens x (10 + 1) ms."""
    fleet = alike(1, max_num_seqs=1)
    requests = asked(*((float(k), *BIG) for k in range(4)), (5, *SMALL))
    assert run(requests, the_first, fleet, "AAAAB").expected_wait_ms[4] == 528.0


def test_a_prompt_on_its_way_is_expected_by_its_own_router_and_known_to_others_once_stored():
    """A's second request brings its block to replica 1, where it is computed by 17 ms. At 2 ms A
    knows that it will be there; B, which takes its first turn, does not, and at 100 ms it does."""
    rows = ((0, 5, 2), (1, 5, 2, (7,)), (2, 5, 2, (7,)), (100, 5, 2, (7,)))
    assert replicas(asked(*rows), most_cached, alike(2), "AAAA") == [0, 1, 1, 1]
    assert replicas(asked(*rows[:3]), most_cached, alike(2), "AAB") == [0, 1, 0]
    assert replicas(asked(*rows[:2], rows[3]), most_cached, alike(2), "AAB") == [0, 1, 1]


def test_a_session_has_a_home_with_each_router():
    requests = workload_of_columns(
        [0.0, 1.0, 2.0, 3.0, 4.0],
        prompt_tokens=[5] * 5,
        output_tokens=[2] * 5,
        session=[8, 9, 9, 9, 9],
    )
    assert replicas(requests, at_home, alike(2), "AABAB") == [0, 1, 0, 1, 0]


def test_rendezvous_hashing_does_the_same_with_any_number_of_routers():
    """Its choice is a function of the key alone, which all of them have."""
    requests = workload_of_columns(
        10.0 * np.arange(200.0),
        prompt_tokens=[5] * 200,
        output_tokens=[9] * 200,
        session=np.arange(200) % 23,
    )
    one, eight = (
        simulate_fleet(
            requests,
            POLICIES["session_affinity"],
            alike(4),
            Conditions(Signals(500.0, 500.0), routers=Routers(count)),
        )
        for count in (1, 8)
    )
    assert eight.replica.tolist() == one.replica.tolist()
    assert eight.finish_ms.tolist() == one.finish_ms.tolist()


def dealt(workload, routers: Routers) -> np.ndarray:
    return fleet_state(workload, alike(2), Signals(), routers, 5).questions["router"]


def test_requests_dealt_at_random_go_to_every_router_alike():
    """4,000 to four routers: 1,000 each, give or take five standard deviations of 27.4."""
    requests = asked(*((float(k), *SMALL) for k in range(4000)))
    counts = np.bincount(dealt(requests, Routers(4)), minlength=4)
    assert len(counts) == 4
    assert (abs(counts - 1000) < 137).all()


def test_requests_dealt_by_session_stay_with_one_router():
    sessions = np.arange(3000) % 300
    requests = workload_of_columns(
        np.arange(3000.0), prompt_tokens=[5] * 3000, output_tokens=[2] * 3000, session=sessions
    )
    found = dealt(requests, Routers(4, "session"))
    assert all(len(set(found[sessions == k].tolist())) == 1 for k in range(300))
    assert set(found.tolist()) == {0, 1, 2, 3}


def test_without_sessions_those_with_the_same_first_block_stay_with_one_router():
    requests = asked(*((float(k), 9, 2, (k % 40, 1000 + k)) for k in range(400)))
    found = dealt(requests, Routers(4, "session"))
    assert all(len(set(found[k::40].tolist())) == 1 for k in range(40))
    assert len(set(found.tolist())) == 4


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Routers(0), "routers: count is 0; expected an integer"),
        (lambda: Routers(65), "routers: count is 65; expected an integer in 1..64"),
        (lambda: Routers(2, "sesion"), "way to deal 'sesion' is unknown.*did you mean session?"),
        (
            lambda: Conditions(holding=Holding(1.0), routers=Routers(2)),
            "holding: 2 routers are to hold requests; expected one router, or nothing held",
        ),
    ],
)
def test_what_cannot_be_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
