"""What is kept while somebody looks, and that nothing is while nobody does."""

from __future__ import annotations

import asyncio

import pytest

from pointsman.dispatch.dispatcher import Dispatcher, Ending, Question, Rules
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.record import Held
from pointsman.policies.catalogue import policy_named
from pointsman.router.settings import Holding
from pointsman.router.ui.first_tokens import MOST_FIRST_TOKENS, FirstTokens, TtftFigures
from pointsman.router.ui.watch import MOST_DECISIONS, UNPLACED, Watch
from tests.router.held_fleet import Arrival, HeldFleet, Timer, rows
from tests.router.in_memory import Lines
from tests.router.routers import run


class Clock:
    """Time that a test moves; ``due``: what was asked to be called later."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.due: list = []

    def later(self, delay_s, callback):
        self.due.append(callback)
        return asyncio.get_running_loop().call_later(1e6, lambda: None)  # only to be cancelled

    def ring(self) -> None:
        self.due.pop()()


def world(log=None):
    clock = Clock()
    rules = Rules(policy_named("round_robin"))
    dispatcher = Dispatcher(rules, [ReplicaFacts()] * 2, lambda: clock.now_ms, log)
    return clock, dispatcher, Watch(dispatcher, clock.later)


def question(number: int = 0) -> Question:
    return Question(str(number), prompt_tokens=10, streams=True)


def serve(dispatcher: Dispatcher, count: int = 1) -> None:
    for number in range(count):
        ticket = dispatcher.choose(question(number))
        ticket.first_token()
        ticket.end(Ending())


@pytest.mark.parametrize("log", [None, Lines()])
def test_while_nobody_looks_the_dispatcher_writes_where_it_always_does(log):
    async def main():
        clock, dispatcher, watch = world(log)
        before = dispatcher.log
        watch.look(0.0)
        during = dispatcher.log
        clock.ring()  # somebody had asked
        assert watch.is_on
        clock.ring()  # nobody has since
        return before is log, during is log, dispatcher.log is log, watch.is_on, clock.due

    assert run(main()) == (True, False, True, False, [])


def test_what_was_kept_is_forgotten_when_nobody_looks_any_more():
    async def main():
        _, dispatcher, watch = world()
        watch.look(0.0)
        serve(dispatcher)
        kept = len(watch.look(1.0).decisions)
        watch.end()
        serve(dispatcher)
        return kept, len(watch.look(2.0).decisions)

    assert run(main()) == (1, 0)


def test_the_log_behind_gets_every_line():
    async def main():
        log = Lines()
        _, dispatcher, watch = world(log)
        watch.look(0.0)
        serve(dispatcher, 3)
        return len(log.choices), len(log.first_tokens), len(log.outcomes)

    assert run(main()) == (3, 3, 3)


def test_each_decision_is_kept_with_the_view_that_it_was_made_from():
    async def main():
        _, dispatcher, watch = world()
        lookout = watch.look(0.0)
        open_tickets = [dispatcher.choose(question(n)) for n in range(4)]
        kept = {n: seen.what.situation.view[1].tolist() for n, seen in lookout.decisions.items()}
        for ticket in open_tickets:
            ticket.end(Ending())
        return kept, len(lookout._sent)

    # Round robin: each of the two had half of the requests before it, the first one first.
    views = {0: [0.0, 0.0], 1: [1.0, 0.0], 2: [1.0, 1.0], 3: [2.0, 1.0]}
    assert run(main()) == (views, 0)


def followers(fleet: HeldFleet, arrivals: list[Arrival]) -> dict[int, int | str | None]:
    """What took the place of each that was held, by sequence."""
    lookout = Watch(fleet.dispatcher, lambda delay_s, callback: Timer()).look(0.0)
    fleet.run(arrivals)
    held = {n: each for n, each in lookout.decisions.items() if isinstance(each.what, Held)}
    return {sequence: each.followed_by for sequence, each in held.items()}


def test_one_that_was_held_knows_which_choice_took_its_place():
    # 0 is sent, 1 held behind it, 2 is its choice.
    assert followers(HeldFleet(), rows((0, 100), (1, 20))) == {1: 2}


def test_one_that_is_held_still_is_followed_by_nothing():
    fleet, seen = HeldFleet(), []
    lookout = Watch(fleet.dispatcher, lambda delay_s, callback: Timer()).look(0.0)
    fleet.at(50.0, lambda: seen.append(lookout.decisions[1].followed_by))
    fleet.run(rows((0, 100), (1, 20)))
    assert seen == [None]


def test_one_that_was_held_and_got_no_replica_knows_so():
    fleet = HeldFleet(holding=Holding(wait_ms=0.0, timeout_ms=10.0))
    fleet.at(5.0, lambda: fleet.membership[0].health.cannot_be_reached("test"))
    fleet.at(11.0, lambda: fleet.admission.check(0.011))
    assert followers(fleet, rows((0, 100), (1, 20))) == {1: UNPLACED}


def test_one_that_is_held_for_another_replica_then_is_followed_by_that():
    # 1 and 2 are held for replica 0 until it is drained: 1 goes to the other one as 3, and 2 is
    # held for that one as 4 until it goes as 5.
    fleet = HeldFleet(replicas=2)
    fleet.at(5.0, lambda: fleet.membership.drain(0))
    assert followers(fleet, rows((0, 100), (1, 20), (2, 20))) == {1: 3, 2: 4, 4: 5}


def test_between_two_questions_so_many_decisions_are_added_and_only_the_last_are_kept():
    async def main():
        _, dispatcher, watch = world()
        watch.look(0.0)
        serve(dispatcher, MOST_DECISIONS + 7)
        first = list(watch.look(1.0).decisions)
        serve(dispatcher, 2)
        lookout = watch.look(2.0)
        return first, list(lookout.decisions), lookout.last_minute(2.0)[1].choices

    first, then, choices = run(main())
    assert first == list(range(MOST_DECISIONS))
    assert then == [*range(2, MOST_DECISIONS), MOST_DECISIONS + 7, MOST_DECISIONS + 8]
    assert choices == MOST_DECISIONS + 9


def test_a_request_that_was_sent_before_anybody_looked_counts_nowhere():
    async def main():
        _, dispatcher, watch = world()
        ticket = dispatcher.choose(question())
        lookout = watch.look(0.0)
        ticket.first_token()
        ticket.end(Ending())
        first = lookout.first_tokens.figures(0.0, 1.0)
        return lookout.decisions, first.count, lookout.last_minute(1.0)[1].choices

    assert run(main()) == ({}, 0, 0)


def test_sums_are_of_the_last_minute():
    async def main():
        clock, dispatcher, watch = world()
        watch.look(0.0)
        found = []
        for second in range(1, 122):
            clock.now_ms = 1000.0 * second
            if second in (1, 100):
                serve(dispatcher, second)
            lookout = watch.look(clock.now_ms)
            found.append((second, lookout.last_minute(clock.now_ms)))
        return {second: (ms, tally.choices) for second, (ms, tally) in found}

    found = run(main())
    assert found[1] == (1000.0, 1)
    assert found[59] == (59_000.0, 1)
    assert found[61] == (60_000.0, 0)  # its second ended at 1 s, which is the mark of a minute ago
    assert found[100] == found[121] == (60_000.0, 100)


def test_percentiles_of_the_first_tokens_are_nearest_rank_over_the_last_minute():
    tokens = FirstTokens()
    tokens.add(39_000.0, 5000.0)
    for number in range(1, 101):
        tokens.add(60_000.0 + 10 * number, float(number))
    found = tokens.figures(0.0, 100_000.0)
    assert (found.count, found.window_s, found.p50_ms, found.p99_ms) == (100, 60.0, 50.0, 99.0)
    assert found.seconds == [(39, 50.0, 100.0)]  # they came 39 to 39.99 s ago


def test_each_second_has_its_own_median_and_longest():
    tokens = FirstTokens()
    for at_ms, ttft_ms in ((500.0, 7.0), (600.0, 9.0), (700.0, 8.0), (2100.0, 1.0)):
        tokens.add(at_ms, ttft_ms)
    assert tokens.figures(0.0, 3000.0).seconds == [(2, 8.0, 9.0), (0, 1.0, 1.0)]


def test_without_a_stream_there_are_no_percentiles():
    assert FirstTokens().figures(500.0, 1500.0) == TtftFigures(0, 1.0, None, None, [])


def test_where_more_first_tokens_came_than_are_kept_the_window_says_so():
    tokens = FirstTokens()
    for number in range(MOST_FIRST_TOKENS + 5):
        tokens.add(10_000.0 + number, 1.0)
    found = tokens.figures(0.0, 20_005.0)
    assert (found.count, found.window_s) == (MOST_FIRST_TOKENS, 10.0)
