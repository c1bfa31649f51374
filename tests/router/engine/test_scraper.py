"""Metrics are asked for beside the requests: what is slow or gone only makes a reading old."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pointsman.core.errors import InputError
from pointsman.router.engine.fetch import Limits
from pointsman.router.engine.scraper import Reading, Scraper, ScrapeSettings, Surroundings
from pointsman.router.upstream import replica_address
from tests.router.engine.fixture_pages import FOLDER, page
from tests.router.fake_replicas import (
    CHUNKED,
    FakeReplica,
    FakeRequest,
    Script,
    Wire,
    chunk,
    never_answer,
    sized,
)
from tests.router.routers import run

DEADLINE_S = 10
TEXT = b"text/plain; version=0.0.4; charset=utf-8"


def answers(name: str) -> Script:
    return sends(sized(page(name).encode(), TEXT))


def sends(data: bytes, *, then_dies: bool = False) -> Script:
    async def script(request: FakeRequest, wire: Wire) -> None:
        await wire.send(data)
        if then_dies:
            wire.writer.close()

    return script


class Turns:
    """Waiting that is over when the test says so."""

    def __init__(self) -> None:
        self.asked_s: list[float] = []
        self.complaints: list[str] = []
        self.now_ms = 0.0
        self._next = asyncio.Semaphore(0)

    async def sleep(self, seconds: float) -> None:
        self.asked_s.append(seconds)
        await self._next.acquire()

    def surroundings(self, draw: float = 0.5) -> Surroundings:
        return Surroundings(lambda: self.now_ms, self.complaints.append, lambda: draw, self.sleep)

    async def take(self, scraper: Scraper, replica: int = 0) -> None:
        """Let one round go by."""
        before = scraper.readings.attempts(replica)
        self._next.release()
        await until(lambda: scraper.readings.attempts(replica) != before)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.001)


def scraping(
    script: Script,
    test: Callable[[Scraper, Turns, FakeReplica], Awaitable[None]],
    settings: ScrapeSettings | None = None,
) -> None:
    """Run a test with a scraper of one fake replica."""

    async def main() -> None:
        turns = Turns()
        scraper = Scraper(settings or ScrapeSettings(), turns.surroundings())
        async with FakeReplica(script) as replica:
            scraper.watch(0, replica_address(replica.url))
            await test(scraper, turns, replica)
            await scraper.close()

    run(main())


def impatient(timeout_s: float = 0.05, max_body_bytes: int = 1 << 20) -> ScrapeSettings:
    return ScrapeSettings(limits=Limits(timeout_s, max_body_bytes))


def test_a_reading_is_what_the_engine_said_with_the_instant_it_was_asked():
    async def test(scraper: Scraper, turns: Turns, replica: FakeReplica) -> None:
        assert scraper.readings.of(0) is None
        turns.now_ms = 4000.0
        await turns.take(scraper)
        reading = scraper.readings.of(0)
        assert reading.engine.waiting_requests == 17
        assert reading.at_ms == 4000.0
        assert reading.age_ms(4500.0) == 500.0
        assert replica.requests[0].path == "/metrics"

    scraping(answers("vllm_v1.txt"), test)


def test_a_reading_is_stale_after_three_intervals():
    reading = Reading(None, 1000.0, ScrapeSettings(interval_s=2.0).stale_after_ms)
    assert not reading.is_stale(7000.0)
    assert reading.is_stale(7000.1)


def test_a_replica_that_answers_no_more_keeps_its_last_reading_and_its_failures_are_counted():
    async def test(scraper: Scraper, turns: Turns, replica: FakeReplica) -> None:
        await turns.take(scraper)
        first = scraper.readings.of(0)
        replica.script = never_answer
        await turns.take(scraper)
        await turns.take(scraper)
        attempts = scraper.readings.attempts(0)
        assert scraper.readings.of(0) is first
        assert (attempts.answers, attempts.failures) == (1, 2)
        assert attempts.last_error == f"{replica.url}/metrics: no answer within 0.05 s"
        replica.script = answers("vllm_v0.txt")
        await turns.take(scraper)
        assert scraper.readings.of(0).engine.waiting_requests == 2
        assert scraper.readings.attempts(0).failures == 2

    scraping(answers("vllm_v1.txt"), test, impatient())


def test_a_slow_replica_holds_up_neither_another_ones_reading_nor_anything_else():
    async def main() -> None:
        turns = Turns()
        scraper = Scraper(ScrapeSettings(limits=Limits(timeout_s=60.0)), turns.surroundings())
        async with FakeReplica(never_answer) as slow, FakeReplica(answers("vllm_v0.txt")) as well:
            scraper.watch(0, replica_address(slow.url))
            scraper.watch(1, replica_address(well.url))
            turns._next.release()
            await turns.take(scraper, replica=1)
            await turns.take(scraper, replica=1)
            assert scraper.readings.of(0) is None
            assert scraper.readings.attempts(1).answers == 2
            await scraper.close()

    run(main())


def test_nobody_there_is_a_failure_that_says_so():
    async def main() -> None:
        turns = Turns()
        scraper = Scraper(ScrapeSettings(), turns.surroundings())
        async with FakeReplica() as replica:
            address = replica_address(replica.url)
        scraper.watch(0, address)
        await turns.take(scraper)
        assert scraper.readings.attempts(0).last_error.startswith(f"{address.url}/metrics: ")
        await scraper.close()

    run(main())


CUT = sized(page("vllm_v0.txt").encode(), TEXT)[:-100]


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (sends(sized(b"no", status=b"404 Not Found")), "status 404"),
        (sends(sized(b"x" * 2000)), "the body is over 1000 bytes"),
        (sends(CHUNKED + chunk(b"x" * 600) + chunk(b"x" * 600)), "the body is over 1000 bytes"),
        (sends(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 40_000), "the head is over 65536 bytes"),
        (sends(b"hello\r\n\r\n"), "the answer is not HTTP"),
        (sends(b"", then_dies=True), "closed the connection within the answer"),
        (sends(CUT[:800], then_dies=True), "closed the connection within the answer"),
        (sends(sized(b"vllm:num_requests_running\n")), "metrics line 1: .* is no sample"),
        (sends(sized(b"\xff\xfe 1\n")), "'utf-8' codec can't decode"),
    ],
)
def test_an_answer_that_is_none_is_a_failure_that_says_why(script, error):
    async def test(scraper: Scraper, turns: Turns, replica: FakeReplica) -> None:
        await turns.take(scraper)
        assert scraper.readings.of(0) is None
        with pytest.raises(InputError, match=rf"/metrics: {error}"):
            raise InputError(scraper.readings.attempts(0).last_error)

    scraping(script, test, impatient(timeout_s=5.0, max_body_bytes=1000))


def test_a_body_that_ends_with_the_connection_is_whole():
    body = page("vllm_v0.txt").encode()

    async def test(scraper: Scraper, turns: Turns, replica: FakeReplica) -> None:
        await turns.take(scraper)
        assert scraper.readings.of(0).engine.running_requests == 5

    scraping(sends(b"HTTP/1.0 200 OK\r\n\r\n" + body, then_dies=True), test)


def test_a_chunked_body_is_whole():
    body = page("vllm_v0.txt").encode()
    pieces = b"".join(chunk(body[start : start + 700]) for start in range(0, len(body), 700))

    async def test(scraper: Scraper, turns: Turns, replica: FakeReplica) -> None:
        await turns.take(scraper)
        assert scraper.readings.of(0).engine.running_requests == 5

    scraping(sends(CHUNKED + pieces + b"0\r\n\r\n"), test)


def llama(slots: bytes) -> Script:
    async def script(request: FakeRequest, wire: Wire) -> None:
        is_slots = request.path == "/slots"
        await wire.send(slots if is_slots else sized(page("llamacpp.txt").encode(), TEXT))

    return script


def test_llama_cpp_is_asked_for_its_slots_too():
    async def test(scraper: Scraper, turns: Turns, replica: FakeReplica) -> None:
        await turns.take(scraper)
        assert scraper.readings.of(0).engine.kv_use == 3959 / 32768

    scraping(llama(sized((FOLDER / "llamacpp_slots.json").read_bytes())), test)


def test_llama_cpp_that_does_not_show_its_slots_is_read_none_the_less():
    async def test(scraper: Scraper, turns: Turns, replica: FakeReplica) -> None:
        await turns.take(scraper)
        assert scraper.readings.of(0).engine.kv_use is None
        assert scraper.readings.of(0).engine.running_requests == 8

    scraping(llama(sized(b"{}", status=b"501 Not Implemented")), test)


def test_each_new_reading_is_passed_on():
    passed = []

    async def main() -> None:
        turns = Turns()
        settings = ScrapeSettings()
        scraper = Scraper(settings, turns.surroundings(), lambda *what: passed.append(what))
        async with FakeReplica(answers("vllm_v0.txt")) as replica:
            scraper.watch(3, replica_address(replica.url))
            await turns.take(scraper, replica=3)
            replica.script = never_answer
            await scraper.close()
        assert passed == [(3, scraper.readings.of(3))]

    run(main())


def test_a_failure_of_who_listens_is_complained_of():
    async def main() -> None:
        turns = Turns()
        scraper = Scraper(ScrapeSettings(), turns.surroundings(), lambda *_: 1 // 0)
        async with FakeReplica(answers("vllm_v0.txt")) as replica:
            scraper.watch(0, replica_address(replica.url))
            await turns.take(scraper)
            await until(lambda: bool(turns.complaints))
            await scraper.close()
        assert "ZeroDivisionError" in turns.complaints[0]

    run(main())


def test_a_host_that_cannot_be_a_name_is_a_failure():
    async def main() -> None:
        turns = Turns()
        scraper = Scraper(ScrapeSettings(), turns.surroundings())
        scraper.watch(0, replica_address(f"http://{'x' * 70}..invalid:1"))
        await turns.take(scraper)
        assert scraper.readings.attempts(0).failures == 1
        await scraper.close()

    run(main())


def test_an_unwatched_replica_is_asked_no_more_and_forgotten():
    async def test(scraper: Scraper, turns: Turns, replica: FakeReplica) -> None:
        await turns.take(scraper)
        scraper.unwatch(0)
        assert scraper.readings.of(0) is None
        assert scraper.readings.attempts(0).answers == 0
        await until(lambda: not replica.open_connections)
        assert len(replica.requests) == 1

    scraping(answers("vllm_v0.txt"), test)


def test_replicas_are_not_asked_at_once_nor_more_often_than_the_interval():
    async def main() -> None:
        for draw in (0.0, 0.999):
            turns = Turns()
            scraper = Scraper(ScrapeSettings(interval_s=1.0), turns.surroundings(draw))
            async with FakeReplica(answers("vllm_v0.txt")) as replica:
                scraper.watch(0, replica_address(replica.url))
                await turns.take(scraper)
                await until(lambda turns=turns: len(turns.asked_s) == 2)
                await scraper.close()
            assert turns.asked_s == [draw, 1.0 + 0.1 * draw]

    run(main())


@pytest.mark.parametrize("interval_s", [0.99, 0.0, -1.0, float("nan")])
def test_an_interval_below_a_second_is_refused(interval_s):
    with pytest.raises(InputError, match=r"scraping: interval_s is .*; expected a number >= 1"):
        ScrapeSettings(interval_s=interval_s)
