"""Replicas that are candidates for some of the requests only, by their weights."""

from collections import Counter
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from pointsman.dispatch.log_file import read_log
from pointsman.replay.replay import replay_same
from pointsman.router.membership import Means, Membership
from pointsman.router.replica_options import ReplicaOptions
from pointsman.router.settings import Probing, Resilience
from pointsman.router.upstream import replica_address
from tests.router.fake_replicas import FakeReplica, answer_json
from tests.router.raw_http import RawClient
from tests.router.routers import chat, routing, run, until

CHAT = "/v1/chat/completions"
REQUESTS = 1000


def weighing(*weights: float) -> Membership:
    """Replicas of these weights that are warm."""
    urls = [f"http://127.0.0.1:{port}" for port in range(1, len(weights) + 1)]
    options = [
        ReplicaOptions(replica_address(url), weight=weight)
        for url, weight in zip(urls, weights, strict=True)
    ]
    means = Means(Resilience(probing=Probing(slow_start_ms=0.0)), lambda: 0.0)
    membership = Membership([each.address for each in options], means, slots=8)
    for number, each in enumerate(options):
        membership.tell(number, each)
    return membership


def times_a_candidate(membership: Membership, without: frozenset[int] = frozenset()) -> Counter:
    return Counter(
        number
        for _ in range(REQUESTS)
        for number in membership.candidates(set(without), membership.next_draw())
    )


@asynccontextmanager
async def routing_by_weight(*weights: float, **given):
    """Yields the fakes and a client."""
    async with FakeReplica(answer_json) as one, FakeReplica(answer_json) as two:
        urls = [one.url, two.url]
        options = [
            ReplicaOptions(replica_address(url), weight=weight)
            for url, weight in zip(urls, weights, strict=True)
        ]
        async with (
            routing(urls, options=options, **given) as (router, port),
            RawClient(port) as client,
        ):
            yield [one, two], client, router


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ((1.0, 0.1), (1000, 100)),
        ((10.0, 1.0), (1000, 100)),
        ((2.0, 2.0), (1000, 1000)),
        ((1.0, 0.5, 0.25), (1000, 500, 250)),
        ((0.1,), (1000,)),
    ],
)
def test_a_replica_is_a_candidate_for_its_weight_over_the_largest(weights, expected):
    """Of 1000 requests, but for the few by which a sequence of least discrepancy is uneven."""
    counted = times_a_candidate(weighing(*weights))
    assert [counted[number] for number in range(len(weights))] == pytest.approx(expected, abs=3)


def test_its_turns_are_spread_evenly_over_the_requests():
    """5 and 8 multiples of the golden ratio come closer than a tenth to a whole number, no fewer
    do; so turns come after 5, 8 or both of them (the theorem of the three gaps)."""
    membership = weighing(1.0, 0.1)
    turns = [
        turn
        for turn in range(REQUESTS)
        if 1 in membership.candidates(set(), membership.next_draw())
    ]
    gaps = [after - before for before, after in pairwise(turns)]
    assert set(gaps) <= {5, 8, 13}


def test_where_the_heaviest_is_not_to_be_had_the_next_one_counts_as_whole():
    counted = times_a_candidate(weighing(1.0, 0.1, 0.05), without=frozenset({0}))
    assert (counted[0], counted[1]) == (0, REQUESTS)
    assert counted[2] == pytest.approx(500, abs=3)


def test_one_that_is_alone_gets_everything():
    membership = weighing(1.0, 0.1)
    membership.drain(0)
    assert times_a_candidate(membership) == {1: REQUESTS}


def test_weights_count_from_the_moment_they_are_told():
    membership = weighing(1.0, 1.0)
    before = times_a_candidate(membership)
    membership.tell(1, ReplicaOptions(membership[1].options.address, weight=0.25))
    after = times_a_candidate(membership)
    assert (before[1], after[0]) == (REQUESTS, REQUESTS)
    assert after[1] == pytest.approx(250, abs=3)


@pytest.mark.parametrize("policy", ["round_robin", "random", "least_requests", "fewest_misses"])
def test_a_canary_has_its_share_under_every_policy_and_the_log_replays(tmp_path, policy):
    """It is a candidate for 20 of 200 requests, and may get these and no other."""

    async def main():
        async with routing_by_weight(1.0, 0.1, policy=policy, log=tmp_path / "log") as at:
            fakes, client, _ = at
            for number in range(200):
                assert (await client.post(CHAT, chat(f"question {number}"))).status == 200
            return [len(fake.requests) for fake in fakes]

    whole, canary = run(main())
    log = read_log(tmp_path / "log")
    assert sum(1 in choice.candidates for choice in log.choices) == pytest.approx(20, abs=2)
    assert whole + canary == 200
    assert canary <= 22
    assert replay_same(log).differences == []


def test_a_canary_gets_all_while_the_other_one_is_down():
    async def main():
        async with routing_by_weight(1.0, 0.1) as (fakes, client, router):
            await fakes[0].__aexit__()
            await until(lambda: router.membership.ready == [1])
            statuses = [(await client.post(CHAT, chat())).status for _ in range(20)]
            return statuses, len(fakes[1].requests)

    assert run(main()) == ([200] * 20, 20)
