"""Every choice is accounted for exactly once, wherever client and replica break off."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.costs.iteration import IterationCosts
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.router.settings import Holding, Resilience
from tests.router.fake_replicas import (
    CHUNKED,
    DONE,
    PIECES,
    answer_json,
    answer_stream,
    chunk,
    dies,
    never_answer,
    sized,
    stalls,
    stream_then,
)
from tests.router.in_memory import World
from tests.router.raw_http import RawClient
from tests.router.routers import bench, chat, until
from tests.router.routers import run as run_on_sockets

CHAT = "/v1/chat/completions"

BODY = b'{"messages":[{"role":"user","content":"Hi"}]}'
POST = b"POST /v1/chat/completions HTTP/1.1\r\nhost: t\r\ncontent-length: %d\r\n\r\n%b"
ASKED = POST % (len(BODY), BODY)
CHUNKED_ASKED = (
    b"POST /v1/chat/completions HTTP/1.1\r\nhost: t\r\ntransfer-encoding: chunked\r\n\r\n"
    + chunk(BODY[:9])
    + chunk(BODY[9:])
    + b"0\r\n\r\n"
)
JSON = b'{"choices":[{"text":"ok"}],"usage":{"prompt_tokens":1}}'
CODED = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"

# What a client sends, and what a replica answers.
KINDS = {
    "stream": (ASKED, CHUNKED + chunk(PIECES[0]) + chunk(PIECES[1] + DONE) + b"0\r\n\r\n"),
    "plain": (ASKED, sized(JSON)),
    "chunked": (CHUNKED_ASKED, CODED + chunk(JSON[:20]) + chunk(JSON[20:]) + b"0\r\n\r\n"),
    "head": (b"HEAD /v1/files HTTP/1.1\r\nhost: t\r\n\r\n", sized(JSON)[: -len(JSON)]),
    "unknown path": (b"PUT /x HTTP/1.1\r\nhost: t\r\ncontent-length: 2\r\n\r\nab", sized(b"{}")),
    "until the end": (b"GET /v1/x HTTP/1.1\r\nhost: t\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\nabc"),
    "error": (ASKED, sized(b"{}", status=b"500 Oops")),
}


def client_leaves(world, client, upstream):
    client.lose(None)


def client_breaks(world, client, upstream):
    client.lose(ConnectionResetError())


def replica_ends(world, client, upstream):
    upstream.lose(None)


def replica_breaks(world, client, upstream):
    upstream.lose(ConnectionResetError())


def replica_is_silent(world, client, upstream):
    world.membership.check(asyncio.get_running_loop().time() + 1e9)


def both_break(world, client, upstream):
    upstream.lose(ConnectionResetError())
    client.lose(ConnectionResetError())


def replica_is_removed_at_once(world, client, upstream):
    for replica in world.membership.members:
        replica.pool.cut_off()


BREAKS = [
    client_leaves,
    client_breaks,
    replica_ends,
    replica_breaks,
    replica_is_silent,
    both_break,
    replica_is_removed_at_once,
]


async def ask(world, request):
    """A client that has sent its request, and the connection on which a replica has it."""
    client, known = world.client(), len(world.upstreams)
    client.receive(request)
    await world.settle(lambda: len(world.upstreams) > known and bool(world.upstreams[-1].sent))
    return client, world.upstreams[-1]


async def finish(world, client, answer):
    """Whoever still serves a request answers all of it; then the client leaves."""
    await world.settle()
    for upstream in world.upstreams:
        if upstream.is_open and upstream.sent and world.dispatcher.ledger.in_flight:
            upstream.receive(answer)
            await world.settle()
    client.lose(None)
    await world.settle()


@pytest.mark.parametrize("breaks", BREAKS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_that_is_broken_off_after_any_byte_is_accounted_once(kind, breaks):
    request, answer = KINDS[kind]

    async def main():
        for offset in range(len(answer) + 1):
            world = World(Resilience(retries=offset % 2))
            client, upstream = await ask(world, request)
            upstream.receive(answer[:offset])
            breaks(world, client, upstream)
            await finish(world, client, answer)
            world.check_over()
            assert 1 <= len(world.log.choices) <= 1 + offset % 2

    asyncio.run(main())


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_leaves_after_any_byte_of_its_request_leaves_nothing(kind):
    request, _ = KINDS[kind]

    async def main():
        world = World(Resilience())
        for offset in range(len(request) + 1):
            client = world.client()
            client.receive(request[:offset])
            await world.settle()
            client.lose(None)
            await world.settle()
            world.check_over()
        assert len(world.log.choices) == 1  # of the whole one

    asyncio.run(main())


@st.composite
def exchanges(draw):
    """One exchange: its kind, how its answer is cut into reads, where and how it breaks off."""
    kind = draw(st.sampled_from(sorted(KINDS)))
    answer = KINDS[kind][1]
    cuts = sorted(draw(st.lists(st.integers(0, len(answer)), max_size=4)))
    offset = draw(st.integers(0, len(answer)))
    return kind, [cut for cut in cuts if cut < offset] + [offset], draw(st.sampled_from(BREAKS))


@given(
    st.lists(exchanges(), min_size=1, max_size=4),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from(["", "refuses", "hangs"]),
)
def test_exchanges_that_break_off_anywhere_one_after_the_other_or_at_once_are_accounted_once(
    script, retries, at_once, then
):
    """``then``: what becomes of connects after the breaks, for the further attempts."""

    async def main():
        world = World(Resilience(retries=retries, holding=Holding(requests=1, timeout_ms=1e6)))

        async def one(kind, cuts, breaks):
            request, answer = KINDS[kind]
            client, upstream = await ask(world, request)
            for start, stop in zip([0, *cuts], cuts, strict=False):
                upstream.receive(answer[start:stop])
                await world.settle()
            world.refuses, world.gate = then == "refuses", asyncio.Event()
            if then != "hangs":
                world.gate.set()
            breaks(world, client, upstream)
            await world.settle()
            if then == "hangs" and cuts[0] % 2:
                world.membership.check(asyncio.get_running_loop().time() + 1e9)
                await world.settle()
            world.refuses = False
            world.gate.set()
            for member in world.membership.members:
                member.health.is_well()
            await finish(world, client, answer)

        if at_once:
            await asyncio.gather(*(one(*step) for step in script))
        else:
            for step in script:
                await one(*step)
                world.check_over()
        for client in list(world.edge.connections):
            client.abort()
        await world.settle()
        world.check_over()

    asyncio.run(main())


def test_a_place_that_comes_at_the_instant_at_which_its_client_leaves_is_given_back():
    async def main():
        world = World(Resilience())
        for member in world.membership.members:
            member.health.cannot_be_reached("test")
        client = world.client()
        client.receive(ASKED)
        await world.settle()
        assert world.admission.held == 1
        world.membership[0].health.is_well()  # the place is there, its request does not know yet
        assert world.dispatcher.ledger.in_flight == 1
        client.lose_now()
        await world.settle()
        world.check_over()
        return [outcome.status for outcome in world.log.outcomes.values()]

    assert asyncio.run(main()) == ["cancelled"]


# With requests held for a replica.

# A prompt token takes seconds: of what waits nothing gets less by itself.
SLOW = ReplicaFacts(IterationCosts(1.0, 1e6, 0.0, 0.0))
STEPS = ("comes", "begins", "ends", "breaks", "leaves", "is away", "is back", "is late")


class Held:
    """A world with requests held for its two replicas, and clients that ask it."""

    def __init__(self, retries: int) -> None:
        holding = Holding(requests=3, timeout_ms=1e6, wait_ms=0.0)
        self.world = World(Resilience(retries=retries, holding=holding), SLOW)
        self.clients = []
        self.most_held = 0

    def step(self, what: str, which: int) -> None:
        world = self.world
        sent = [wire for wire in world.upstreams if wire.is_open and wire.sent]
        health = world.membership[which % 2].health
        if what == "comes":
            self.clients.append(world.client())
            self.clients[-1].receive(ASKED)
        elif what == "leaves" and self.clients:
            self.clients[which % len(self.clients)].lose(None)
        elif what == "is away":
            health.cannot_be_reached("test")
        elif what == "is back":
            health.is_well()
        elif what == "is late":
            world.admission.check(asyncio.get_running_loop().time() + 1e9)
        elif sent:
            wire = sent[which % len(sent)]
            begun, rest = KINDS["stream"][1][:170], KINDS["stream"][1][170:]
            if what == "breaks":
                wire.lose(ConnectionResetError())
            elif what == "begins" and wire not in self.begun:
                self.begun.append(wire)
                wire.receive(begun)
            elif what == "ends" and wire in self.begun:
                self.begun.remove(wire)
                wire.receive(rest)

    async def run(self, script) -> None:
        self.begun = []
        for what, which in script:
            self.step(what, which)
            await self.world.settle()
            self.most_held = max(self.most_held, len(self.world.log.held))
        for client in self.clients:
            client.lose(None)
        await self.world.settle()
        self.world.check_over()


@given(
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9)), min_size=3, max_size=40),
    st.integers(0, 2),
)
def test_requests_that_are_held_are_accounted_once_whatever_happens_to_whom(script, retries):
    """After each step both accounts are one, and the log tells of each that is held once."""

    async def main():
        await Held(retries).run([("comes", 0)] * 4 + script)

    asyncio.run(main())


def test_of_more_than_two_at_once_the_others_are_held_and_go_when_a_first_token_comes():
    async def main():
        held = Held(retries=0)
        await held.run([("comes", 0)] * 4 + [("begins", 0), ("begins", 1), ("ends", 0)])
        return held.most_held, len(held.world.log.choices), held.world.log.unplaced

    assert asyncio.run(main()) == (2, 4, [])


# On real sockets, at the boundary of each phase.


async def dies_at_once(request, wire):
    wire.die()


async def dies_within_the_head(request, wire):
    await wire.send(CHUNKED[:30])
    wire.die()


PHASES = {
    "before the answer": [never_answer],
    "after the head": [stream_then(0, stalls)],
    "within a stream": [stream_then(4, stalls)],
    "before the last piece": [stream_then(8, stalls)],
    "on the second attempt": [dies_at_once, never_answer],
    "within the second attempt's stream": [dies_within_the_head, stream_then(4, stalls)],
}


@pytest.mark.parametrize("phase", PHASES)
def test_a_client_that_leaves_in_any_phase_leaves_no_count_behind(phase):
    async def main():
        scripts = PHASES[phase]
        async with bench(*scripts) as at:
            async with RawClient(at.port) as leaver:
                leaver.send("POST", CHAT, chat(stream=True))
                await until(lambda: len(at.fakes[-1].requests) == 1)
                assert at.router.dispatcher.ledger.in_flight == 1
            await until(lambda: at.router.dispatcher.ledger.in_flight == 0)
            await until(lambda: all(fake.open_connections == 0 for fake in at.fakes))

    run_on_sockets(main())


@pytest.mark.parametrize("pieces", range(9))
@pytest.mark.parametrize("then", [dies_at_once, answer_json, answer_stream, stream_then(2, dies)])
def test_a_replica_that_dies_in_any_phase_leaves_no_count_behind(pieces, then):
    async def main():
        async with bench(stream_then(pieces, dies), then) as at:
            for _ in range(4):
                async with RawClient(at.port) as client:
                    await client.post(CHAT, chat(stream=True))
            await until(lambda: at.router.dispatcher.ledger.in_flight == 0)
            at.router.dispatcher.ledger.check_invariants()

    run_on_sockets(main())
