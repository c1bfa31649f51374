"""Replicas that answer requests with errors and their probes well."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest

from pointsman.dispatch.log_file import read_log
from pointsman.replay.replay import replay_same
from pointsman.router.membership import Means, Membership
from pointsman.router.settings import Probing, Resilience, SettingAside
from pointsman.router.upstream import replica_address
from tests.router.fake_replicas import answer_json, sized
from tests.router.routers import Bench, bench, chat, run, until

CHAT = "/v1/chat/completions"
NEVER_MIND = SettingAside(first_ms=1e6, most_ms=1e6)


def says(status: bytes):
    async def script(request, wire):
        await wire.send(sized(b'{"error":"broken"}', status=status))

    return script


fails = says(b"500 Internal Server Error")


async def poisoned_by_a_word(request, wire):
    await (fails if b"poison" in request.body else answer_json)(request, wire)


async def ask(at: Bench, count: int, text: str = "question {}") -> list[int]:
    return [(await at.client.post(CHAT, chat(text.format(n)))).status for n in range(count)]


async def states(at: Bench) -> list[str]:
    return [each["state"] for each in (await at.client.request("GET", "/health")).json["replicas"]]


@asynccontextmanager
async def fleet(*scripts, setting_aside: SettingAside = NEVER_MIND, **given):
    async with bench(*scripts, setting_aside=setting_aside, **given) as at:
        yield at


# Real sockets.


def test_a_replica_that_fails_five_requests_in_a_row_gets_none_while_others_answer(tmp_path):
    async def main():
        async with fleet(fails, answer_json, log=tmp_path / "log") as at:
            statuses = await ask(at, 40)
            await until(lambda: at.fake.probes > 2)
            page = (await at.client.request("GET", "/metrics")).body.decode()
            health = (await at.client.request("GET", "/health")).json["replicas"][0]
            return statuses, len(at.fake.requests), await states(at), health, page, at.fake.url

    statuses, reached, seen, health, page, url = run(main())
    assert (statuses.count(500), statuses.count(200), reached) == (5, 35, 5)
    assert seen == ["set_aside", "up"]
    assert health["last_failure"]["error"] == (
        "answered 5 requests in a row with errors; set aside for 1e+06 ms"
    )
    assert f'pointsman_replica_up{{replica="{url}"}} 0' in page
    assert replay_same(read_log(tmp_path / "log")).differences == []


def test_it_comes_back_when_its_time_is_over_and_stays_if_it_answers_well():
    async def main():
        async with fleet(fails, answer_json, setting_aside=SettingAside(5, 50.0)) as at:
            await ask(at, 12)
            seen = await states(at)
            at.fake.script = answer_json
            await until(lambda: at.router.membership.ready == [0, 1])
            return seen, set(await ask(at, 20)), await states(at)

    assert run(main()) == (["set_aside", "up"], {200}, ["up", "up"])


@pytest.mark.parametrize("status", [b"400 Bad Request", b"404 Not Found", b"429 Too Many Requests"])
def test_answers_that_blame_the_request_never_count(status):
    async def main():
        async with fleet(says(status), answer_json) as at:
            await ask(at, 40)
            return await states(at)

    assert run(main()) == ["up", "up"]


def test_an_engine_that_says_that_it_is_full_is_not_set_aside():
    async def main():
        async with fleet(says(b"503 Service Unavailable"), answer_json) as at:
            await ask(at, 40)
            return await states(at)

    assert run(main()) == ["up", "up"]


def test_one_request_that_no_engine_can_take_sets_nobody_aside_however_often_it_is_tried():
    async def main():
        async with fleet(*[poisoned_by_a_word] * 3) as at:
            statuses = []
            for _ in range(20):
                statuses += await ask(at, 4, "poison")
                statuses += await ask(at, 1, "a good one")
            return statuses.count(500), await states(at)

    assert run(main()) == (80, ["up"] * 3)


def test_many_requests_that_no_engine_can_take_leave_at_least_half_of_the_replicas():
    """Each is poison, and well answered ones come between, on whichever replica has its turn."""

    async def main():
        async with fleet(*[poisoned_by_a_word] * 4) as at:
            for number in range(40):
                await ask(at, 5, f"poison {number} {{}}")
                await ask(at, 1, "a good one")
            good = await ask(at, 20)
            return await states(at), set(good)

    seen, good = run(main())
    assert seen.count("up") >= 2
    assert good == {200}


def test_one_that_is_alone_is_never_set_aside():
    async def main():
        async with fleet(fails) as at:
            return set(await ask(at, 20)), await states(at)

    assert run(main()) == ({500}, ["up"])


def test_where_all_fail_nobody_is_set_aside():
    async def main():
        async with fleet(fails, fails, fails) as at:
            return len(await ask(at, 60)), await states(at)

    assert run(main()) == (60, ["up"] * 3)


def test_one_that_was_set_aside_gets_everything_when_the_other_one_dies():
    async def main():
        async with fleet(fails, answer_json) as at:
            await ask(at, 12)
            at.fake.script = answer_json
            await at.fakes[1].__aexit__()
            await until(lambda: at.router.membership.ready == [0])
            return set(await ask(at, 10))

    assert run(main()) == {200}


def test_it_can_be_turned_off():
    async def main():
        async with fleet(fails, answer_json, setting_aside=SettingAside(answers=0)) as at:
            return (await ask(at, 40)).count(500), await states(at)

    assert run(main()) == (20, ["up", "up"])


# A clock that is turned by hand.


class Fleet:
    """Three replicas, of which the first one fails when it is told to."""

    def __init__(self, replicas: int = 3) -> None:
        self.now_s = 1000.0
        self.requests = 0
        addresses = [replica_address(f"http://r{number}") for number in range(replicas)]
        means = Means(Resilience(probing=Probing(slow_start_ms=0.0)), lambda: self.now_s)
        self.membership = Membership(addresses, means, slots=replicas)

    def answers(self, number: int, *statuses: int, model: str = "m") -> None:
        for status in statuses:
            self.requests += 1
            self.membership.answered(self.membership[number], status, model, self.requests)

    def set_aside_for_s(self) -> float:
        """Let the first one fail beside one that does not; how long it is away."""
        self.answers(0, 500)
        self.answers(1, 200)
        self.answers(0, 500, 502, 504, 500)
        assert self.membership.ready == [1, 2]
        began_s = self.now_s
        while self.membership.ready == [1, 2]:
            self.now_s += 1.0
            self.membership.check(self.now_s)
        return self.now_s - began_s


def test_the_time_grows_with_each_time_in_succession_up_to_five_minutes():
    fleet = Fleet()
    times_s = [fleet.set_aside_for_s() for _ in range(12)]
    assert times_s == [30, 60, 90, 120, 150, 180, 210, 240, 270, 300, 300, 300]


def test_it_is_short_again_for_one_that_was_well_as_long_as_it_was_away():
    fleet = Fleet()
    assert [fleet.set_aside_for_s() for _ in range(2)] == [30, 60]
    fleet.now_s += 60.0
    assert fleet.set_aside_for_s() == 30


def test_one_good_answer_breaks_the_row():
    fleet = Fleet()
    fleet.answers(0, 500)
    fleet.answers(1, 200)
    fleet.answers(0, 500, 500, 500, 200, 500, 500, 500, 500)
    assert fleet.membership.ready == [0, 1, 2]


def test_a_good_answer_of_another_one_before_the_row_or_to_another_model_says_nothing():
    fleet = Fleet()
    fleet.answers(1, 200)
    fleet.answers(0, 500, 500)
    fleet.answers(2, 200, model="other")
    fleet.answers(0, 500, 500, 500)
    assert fleet.membership.ready == [0, 1, 2]
    fleet.answers(2, 200)
    fleet.answers(0, 500)
    assert fleet.membership.ready == [1, 2]


def test_a_witness_that_fails_itself_is_none():
    fleet = Fleet()
    fleet.answers(0, 500)
    fleet.answers(1, 200, 500)
    fleet.answers(0, 500, 500, 500, 500)
    assert fleet.membership.ready == [0, 1, 2]


def test_of_three_only_one_is_set_aside():
    fleet = Fleet()
    for number in (0, 1):
        fleet.answers(number, 500)
        fleet.answers(2, 200)
        fleet.answers(number, 500, 500, 500, 500)
    assert fleet.membership.ready == [1, 2]


def test_one_that_was_started_anew_is_as_good_as_new():
    fleet = Fleet()
    fleet.answers(0, 500)
    fleet.answers(1, 200)
    fleet.answers(0, 500, 500, 500, 500)
    health = fleet.membership[0].health
    health.cannot_be_reached("refused")
    health.is_well()
    assert fleet.membership.ready == [0, 1, 2]
