"""Over pairs too every choice is accounted for exactly once, wherever a leg breaks off."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.router.settings import Resilience
from tests.router.fake_replicas import sized
from tests.router.pair_world import PairWorld
from tests.router.test_exactly_once import ASKED, BREAKS

# What any leg of any protocol is answered with.
JSON = (
    b'{"choices":[{"text":"ok"}],"usage":{"prompt_tokens":1},"kv_transfer_params":{"a":1},'
    b'"total_slots":2,"n_written":5}'
)
ANSWER = sized(JSON)
HEAD = len(ANSWER) - len(JSON)
OFFSETS = [0, 1, HEAD - 1, HEAD, HEAD + 1, len(ANSWER) - 1, len(ANSWER)]
LEGS = {"nixl": 2, "shared_storage": 2, "sglang": 2, "llamacpp": 6}
MOST_LEGS = 40  # of a request with all its attempts


async def asked(world):
    client = world.client()
    client.receive(ASKED)
    await world.settle(lambda: bool(world.busy))
    return client


async def finish(world, client):
    """Whoever has a request answers it; then the client leaves."""
    for _ in range(MOST_LEGS):
        await world.settle()
        if not world.busy:
            break
        world.busy[0].receive(ANSWER)
    else:
        raise AssertionError("it never ends")
    client.lose(None)
    await world.settle()


@pytest.mark.parametrize("breaks", BREAKS)
@pytest.mark.parametrize("handoff", LEGS)
def test_a_leg_that_is_broken_off_anywhere_is_accounted_once(handoff, breaks):
    async def main():
        for leg in range(LEGS[handoff]):
            for offset in OFFSETS:
                world = PairWorld(handoff, Resilience(retries=offset % 2))
                client = await asked(world)
                for _ in range(leg):
                    world.busy[0].receive(ANSWER)
                    await world.settle(lambda world=world: bool(world.busy))
                wire = world.busy[0]
                wire.receive(ANSWER[:offset])
                breaks(world, client, wire)
                await finish(world, client)
                world.check_over()

    asyncio.run(main())


STEPS = ("comes", "answers", "breaks", "refuses", "errs", "leaves", "is away", "is back")


@given(
    st.sampled_from(sorted(LEGS)),
    st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9)), min_size=3, max_size=40),
    st.integers(0, 2),
)
def test_requests_over_pairs_are_accounted_once_whatever_happens_to_whom(handoff, script, retries):
    """After each step both accounts are one, and no slot is lost."""

    async def main():
        world = PairWorld(handoff, Resilience(retries=retries))
        clients = []
        for what, which in [("comes", 0), ("comes", 0), *script]:
            health = world.membership[which % 4].health
            if what == "comes":
                clients.append(world.client())
                clients[-1].receive(ASKED)
            elif what == "leaves":
                clients[which % len(clients)].lose(None)
            elif what == "is away":
                health.cannot_be_reached("test")
            elif what == "is back":
                health.is_well()
            elif world.busy:
                wire = world.busy[which % len(world.busy)]
                if what == "breaks":
                    wire.lose(ConnectionResetError())
                else:
                    status = {"answers": b"200 OK", "refuses": b"400 Bad", "errs": b"500 Oops"}
                    wire.receive(sized(JSON, status=status[what]))
            await world.settle()
        for client in clients:
            client.lose(None)
        await world.settle()
        world.check_over()

    asyncio.run(main())
