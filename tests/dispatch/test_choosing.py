"""The one compiled call against the same steps taken one by one in Python."""

from __future__ import annotations

import random

import numpy as np
import pytest

from pointsman.core.errors import InputError
from pointsman.costs.iteration import IterationCosts
from pointsman.dispatch.dispatcher import Dispatcher, Ending, Question, Rules
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.ledger import Asked
from pointsman.dispatch.prefix_index import Chain
from pointsman.dispatch.view import decide
from pointsman.policies.catalogue import POLICIES
from pointsman.policies.policy import CACHED_TOKENS, FREE_AT_MS, ROWS, WORK_MS, policy

REPLICAS = 5
EVERY_ROW = (1 << ROWS) - 1


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0.0

    def __call__(self) -> float:
        return self.now_ms


def some_question(draws: random.Random, number: int) -> Question:
    length = draws.randrange(6)
    start = draws.randrange(4)
    return Question(
        str(number),
        prompt_tokens=draws.choice([-1, 0, 1, 40, 400]),
        output_tokens=16,
        chain=Chain([100 * start + place for place in range(length)], 64),
        session=draws.choice([None, "a", "b", "c"]),
        unread_tokens=draws.randrange(300),
        streams=draws.random() < 0.5,
    )


def filled_again(dispatcher: Dispatcher, chosen) -> np.ndarray:
    """The view by the calls that the replay uses."""
    candidates = np.array(chosen.situation.candidates, dtype=np.int32)
    views = np.empty((ROWS, len(candidates))), np.empty((ROWS, len(candidates)))
    ledger = dispatcher.ledger
    dispatcher.prefixes.fill(chosen.question.chain, ledger.cached)
    sizes = chosen.question.priced_tokens, EVERY_ROW
    ledger.fill(Asked(chosen.situation.now_ms, sizes, candidates, views))
    return views[0]


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_choice_is_what_its_steps_come_to(name):
    draws = random.Random(name)
    clock = Clock()
    facts = [ReplicaFacts(IterationCosts(5.0, 0.05 * (k + 1), 0.05, 1e-5), 4) for k in range(5)]
    dispatcher = Dispatcher(Rules(POLICIES[name], seed=3), facts, clock)
    open_tickets = []
    for number in range(300):
        clock.now_ms += draws.expovariate(0.05)
        while open_tickets and draws.random() < 0.45:
            ticket = open_tickets.pop(draws.randrange(len(open_tickets)))
            ticket.first_token()
            ticket.end(Ending("ok", 200))
        among = sorted(draws.sample(range(REPLICAS), draws.randint(1, REPLICAS)))
        chosen = dispatcher.ask(some_question(draws, number), among)
        view = filled_again(dispatcher, chosen)
        np.testing.assert_array_equal(chosen.situation.view, view)
        decision = decide(POLICIES[name], chosen.situation, dispatcher.ledger.known)
        assert chosen.candidate == decision.candidate
        assert chosen.reason == POLICIES[name].reasons[decision.reason]
        c = chosen.candidate
        assert chosen.replica == among[c]
        assert chosen.expected_wait_ms == max(0.0, view[FREE_AT_MS, c] - clock.now_ms)
        assert (chosen.work_ms, chosen.hit_tokens) == (view[WORK_MS, c], view[CACHED_TOKENS, c])
        open_tickets.append(dispatcher.send(chosen))


def test_a_prompt_of_more_blocks_than_there_is_room_for_is_looked_up_whole():
    dispatcher = Dispatcher(Rules(POLICIES["locality_aware"]), [ReplicaFacts()] * 2, Clock())
    question = Question("q", prompt_tokens=100_000, chain=Chain(range(1, 1_001), 64))
    ticket = dispatcher.choose(question)
    ticket.end(Ending("ok", 200))
    again = dispatcher.ask(question)
    assert (again.replica, again.hit_tokens) == (ticket.replica, 64_000)


def test_a_choice_of_nobody_is_an_error_and_changes_nothing():
    @policy(rule="-", source="-", reasons=("-",))
    def beyond(request, view, parameters):
        return 2, 0

    dispatcher = Dispatcher(Rules(beyond), [ReplicaFacts()] * 2, Clock())
    with pytest.raises(InputError, match=r"policy beyond chose candidate 2 .* in 0\.\.1"):
        dispatcher.choose(Question("q"))
    assert dispatcher.ledger.in_flight == 0


def test_a_reason_that_the_policy_has_not_is_an_error():
    @policy(rule="-", source="-", reasons=("-",))
    def wordy(request, view, parameters):
        return 0, 1

    dispatcher = Dispatcher(Rules(wordy), [ReplicaFacts()] * 2, Clock())
    with pytest.raises(InputError, match="policy wordy chose candidate 0 for reason 1"):
        dispatcher.choose(Question("q"))
