"""A coroutine that goes on within the call that gives what it waits for."""

from __future__ import annotations

import asyncio

from pointsman.router.flow import Flow, Signal


class Told:
    """What a flow did, in order, and how it ended."""

    def __init__(self) -> None:
        self.steps: list[str] = []
        self.endings: list[Exception | None] = []

    async def wait_for(self, awaited) -> None:
        self.steps.append("begun")
        try:
            await awaited
            self.steps.append("went on")
        except asyncio.CancelledError:
            self.steps.append("cancelled")
            raise

    def flow(self, awaited) -> Flow:
        return Flow(self.wait_for(awaited), self.endings.append)


def test_it_begins_at_once_and_goes_on_within_the_call_that_gives():
    told, signal = Told(), Signal()
    told.flow(signal).go_on()
    assert told.steps == ["begun"]
    signal.give()
    assert (told.steps, told.endings) == (["begun", "went on"], [None])
    signal.give()
    assert told.endings == [None]


def test_what_was_given_before_is_not_waited_for():
    told, signal = Told(), Signal()
    signal.give()
    told.flow(signal).go_on()
    assert told.steps == ["begun", "went on"]


def test_the_error_that_is_given_is_the_error_that_it_ends_with():
    told, signal, error = Told(), Signal(), ValueError("given")
    told.flow(signal).go_on()
    signal.give(error)
    assert (told.steps, told.endings) == (["begun"], [error])


def test_one_that_is_cancelled_ends_where_it_waits_and_hears_nothing_more():
    told, signal = Told(), Signal()
    flow = told.flow(signal)
    flow.go_on()
    flow.cancel()
    signal.give()
    flow.cancel()
    assert (told.steps, told.endings) == (["begun", "cancelled"], [None])


def test_one_that_is_cancelled_while_it_runs_ends_at_its_next_wait():
    told, signal, flows = Told(), Signal(), []

    async def cancels_itself() -> None:
        flows[0].cancel()
        await told.wait_for(signal)

    flows.append(Flow(cancels_itself(), told.endings.append))
    flows[0].go_on()
    assert (told.steps, told.endings) == (["begun", "cancelled"], [None])


def test_it_waits_for_futures_of_the_loop_and_cancels_them():
    async def main() -> tuple[Told, Told, bool]:
        future = asyncio.get_running_loop().create_future()
        done, left = Told(), Told()
        done.flow(asyncio.sleep(0)).go_on()
        waiting = left.flow(future)
        waiting.go_on()
        waiting.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
        return done, left, future.cancelled()

    done, left, is_cancelled = asyncio.run(main())
    assert (done.steps, done.endings) == (["begun", "went on"], [None])
    assert (left.steps, left.endings, is_cancelled) == (["begun", "cancelled"], [None], True)
