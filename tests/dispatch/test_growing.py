"""A dispatcher whose arrays are replaced while choices go on, beside its steps one by one.

Compiled choices find arrays by their addresses: whatever is larger or another one now must be found
there at the next choice, and what it took the place of must not be read again.
"""

import gc
import random

import numpy as np
import pytest

from pointsman.costs.iteration import IterationCosts
from pointsman.dispatch.dispatcher import Dispatcher, Ending, Memory, Rules
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.holders import REPLICAS_A_WORD
from pointsman.dispatch.ledger import FIRST_SLOTS, Asked
from pointsman.dispatch.prefix_index import Chain, PrefixIndex
from pointsman.dispatch.question import Question, Wait
from pointsman.dispatch.view import decide
from pointsman.policies.catalogue import POLICIES
from pointsman.policies.policy import ROWS

FACTS = ReplicaFacts(IterationCosts(5.0, 0.05, 0.05, 1e-5), 4)
BLOCKS = 3000  # of the index; many more are asked for
STEPS = 1500


def dirty_what_is_free() -> None:
    """Have freed arrays of any size here handed out again and written to, so that whoever still
    reads one reads nonsense."""
    for size in (1 << shift for shift in range(6, 20)):
        np.full(size, np.nan)
        np.full(size, -1, dtype=np.int32)


class Scene:
    def __init__(self, name: str) -> None:
        self.draws = random.Random(name)
        self.policy = POLICIES[name]
        self.now_ms = 0.0
        replicas = REPLICAS_A_WORD - 2
        memory = Memory(3 * REPLICAS_A_WORD, PrefixIndex(replicas, BLOCKS * 40))
        self.of = Dispatcher(
            Rules(self.policy, seed=3), [FACTS] * replicas, lambda: self.now_ms, None, memory
        )
        self.tickets, self.holds = [], []

    def question(self, number: int) -> Question:
        blocks = self.draws.choice((0, 1, 7, 40, 511, 513, 700 + number % 900))
        start = self.draws.randrange(4)
        hashes = [start + 1, *(start * 10_000 + k + 10 for k in range(blocks))]
        chain = Chain(hashes[:blocks], 64)
        return Question(
            str(number), "/", 64 * blocks + 5, 16, chain, streams=self.draws.random() < 0.5
        )

    def joins(self) -> None:
        if self.of.ledger.count < 3 * REPLICAS_A_WORD:
            number = self.of.join(f"http://r{self.of.ledger.count}", FACTS)
            if number == self.of.prefixes.replicas:
                self.of.prefixes.add_replica()

    def ends(self) -> None:
        ticket = self.tickets.pop(self.draws.randrange(len(self.tickets)))
        if self.draws.random() < 0.7:
            ticket.first_token()
        ticket.end(Ending("ok", 200))

    def asks(self, number: int) -> None:
        count = self.of.ledger.count
        among = sorted(self.draws.sample(range(count), self.draws.choice((1, 2, count, count))))
        question = self.question(number)
        chosen = self.of.ask(question, among)
        view = self.filled_again(question, among)
        np.testing.assert_array_equal(chosen.situation.view, view)
        decision = decide(self.policy, chosen.situation, self.of.ledger.known)
        assert (chosen.candidate, among[chosen.candidate]) == (decision.candidate, chosen.replica)
        if self.draws.random() < 0.1:
            self.holds.append((question, Wait(self.now_ms, self.of.hold(chosen))))
        else:
            self.tickets.append(self.of.send(chosen))

    def filled_again(self, question: Question, among: list[int]) -> np.ndarray:
        """By the steps of the replay, each array handed over as it is."""
        views = np.empty((ROWS, len(among))), np.empty((ROWS, len(among)))
        self.of.prefixes.fill(question.chain, self.of.ledger.cached)
        sizes = question.priced_tokens, (1 << ROWS) - 1
        candidates = np.array(among, dtype=np.int32)
        self.of.ledger.fill(Asked(self.now_ms, sizes, candidates, views))
        return views[0]


@pytest.mark.parametrize("name", ["fewest_misses", "locality_aware", "preble", "dynamo_kv"])
def test_choices_are_what_their_steps_come_to_while_all_that_they_look_at_grows(name):
    scene = Scene(name)
    most = 0
    for number in range(STEPS):
        scene.now_ms += scene.draws.expovariate(0.5)
        kind = scene.draws.random()
        if kind < 0.1:
            scene.joins()
        elif kind < 0.15:
            scene.of.prefixes.forget(scene.draws.randrange(scene.of.ledger.count))
        elif kind < 0.2 and scene.holds:
            scene.of.give_up(*scene.holds.pop(), "client_left")
        elif kind < 0.45 and scene.tickets:
            scene.ends()
        if number % 100 == 0:
            gc.collect()
            dirty_what_is_free()
        scene.asks(number)
        most = max(most, scene.of.ledger.in_flight)
    assert most > 2 * FIRST_SLOTS
    assert scene.of.ledger.count > 2 * REPLICAS_A_WORD
    scene.of.ledger.check_invariants()
    scene.of.prefixes.check_invariants()
