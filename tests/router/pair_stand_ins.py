"""Stand-ins for prefill and decode replicas: each protocol's HTTP, and nothing of an engine.

Sources of the shapes. NIXL: vLLM 0.32, run, whose answer has ``kv_transfer_params`` with these
names. SGLang: sgl-model-gateway/src/routers/http/pd_types.rs, where both get the same body with a
room and answer when they have met. llama.cpp: its server, run: /props has ``total_slots``, a save
answers with ``n_written``, a restore with ``n_read``.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from pointsman.router.handoff.protocols import HandOffSettings
from pointsman.router.replica_options import DECODE, PREFILL, ReplicaOptions
from pointsman.router.service import Router
from pointsman.router.upstream import replica_address
from tests.router.fake_replicas import FakeReplica, Script, answer_json, sized
from tests.router.raw_http import RawClient
from tests.router.routers import chat, routing, run

CHAT = "/v1/chat/completions"

PARAMETERS = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_block_ids": [[1, 2, 3]],
    "remote_engine_id": "b1946ac9",
    "remote_request_id": "cmpl-7",
    "remote_host": "127.0.0.1",
    "remote_port": 25600,
    "tp_size": 1,
    "remote_num_tokens": 1224,
}
ONE_TOKEN = {"choices": [{"text": "a"}], "usage": {"prompt_tokens": 31, "completion_tokens": 1}}


def answers(what, status: bytes = b"200 OK") -> Script:
    """Answers every request with this JSON."""

    async def script(request, wire) -> None:
        await wire.send(sized(json.dumps(what).encode(), status=status))

    return script


nixl_prefill = answers({**ONE_TOKEN, "kv_transfer_params": PARAMETERS})


@dataclass
class Rooms:
    """Where the two of an SGLang pair meet. ``left``: how many waited, and saw their client go."""

    left: int = 0
    open: dict[int, asyncio.Event] = field(default_factory=dict)

    def of(self, request) -> asyncio.Event:
        room = json.loads(request.body)["bootstrap_room"]
        return self.open.setdefault(room, asyncio.Event())

    async def prefill(self, request, wire) -> None:
        self.of(request).set()
        await wire.send(sized(json.dumps(ONE_TOKEN).encode()))

    async def decode(self, request, wire) -> None:
        met = asyncio.create_task(self.of(request).wait())
        gone = asyncio.create_task(wire.reader.read(1))
        await asyncio.wait((met, gone), return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if met.done():
            await answer_json(request, wire)
            return
        met.cancel()
        self.left += 1
        wire.die()


@dataclass
class Slots:
    """A llama.cpp server: ``files`` are those of its folder, with bytes each; ``slots`` how many.

    ``refuses``, ``stalls_at``: what it answers with 500, or not at all.
    """

    files: dict[str, int]
    slots: int = 2
    refuses: str = ""
    stalls_at: str = ""

    async def __call__(self, request, wire) -> None:
        if self.stalls_at and self.stalls_at in request.path:
            await wire.reader.read(1)
        elif self.refuses and self.refuses in request.path:
            await wire.send(sized(b'{"error":{}}', status=b"500 Oops"))
        elif request.path == "/props":
            await wire.send(sized(json.dumps({"total_slots": self.slots}).encode()))
        elif "action=save" in request.path:
            self.files[json.loads(request.body)["filename"]] = 2_500_000
            await wire.send(sized(b'{"n_saved":31,"n_written":2500000}'))
        elif "action=restore" in request.path:
            assert json.loads(request.body)["filename"] in self.files
            await wire.send(sized(b'{"n_restored":31,"n_read":2500000}'))
        else:
            await answer_json(request, wire)


@dataclass
class PairBench:
    prefills: list[FakeReplica]
    decodes: list[FakeReplica]
    router: Router
    client: RawClient
    port: int

    @property
    def prefill(self) -> FakeReplica:
        return self.prefills[0]

    @property
    def decode(self) -> FakeReplica:
        return self.decodes[0]

    @property
    def failures(self) -> dict[str, int]:
        """Hand-offs that were not made, by cause."""
        counted = self.router._exchange._pages.pairs.failures
        return {cause: count for cause, count in counted.items() if count}

    @property
    def handoffs(self) -> list[int]:
        return self.router._exchange._pages.pairs.made


@asynccontextmanager
async def pair_bench(
    handoff: str,
    prefills: list[Script],
    decodes: list[Script],
    policy: str = "earliest_first_token",
    timeout_ms: float = 5000.0,
    **settings,
):
    """Stand-ins behind a router that makes pairs of them; yields a PairBench."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        fakes = [await enter(FakeReplica(script)) for script in [*prefills, *decodes]]
        roles = [PREFILL] * len(prefills) + [DECODE] * len(decodes)
        options = [
            ReplicaOptions(replica_address(fake.url), role=role)
            for fake, role in zip(fakes, roles, strict=True)
        ]
        urls = [fake.url for fake in fakes]
        settings = {
            "options": options,
            "handoff": HandOffSettings(handoff, timeout_ms),
            "scrape": None,
            **settings,
        }
        router, port = await enter(routing(urls, policy, **settings))
        client = await enter(RawClient(port))
        first, rest = fakes[: len(prefills)], fakes[len(prefills) :]
        yield PairBench(first, rest, router, client, port)
        assert router.dispatcher.ledger.in_flight == 0
        assert [member.in_flight for member in router.membership.members] == [0] * len(fakes)


def bodies(fake: FakeReplica) -> list[dict]:
    return [json.loads(request.body or b"null") for request in fake.requests]


def paths(fake: FakeReplica) -> list[str]:
    return [request.path for request in fake.requests]


BODY = chat("Hello", max_tokens=64, stream=True, stream_options={"include_usage": True}, top_p=0.10)


def asked(handoff, prefill, decode, body=BODY, path=CHAT, **settings):
    """(answer, prefill's bodies, decode's bodies, failures, hand-offs) of one request."""

    async def main():
        async with pair_bench(handoff, [prefill], [decode], **settings) as at:
            answer = await at.client.post(path, body)
            seen = bodies(at.prefill), bodies(at.decode)
        return answer, *seen, at.failures, at.handoffs[0]

    return run(main())
