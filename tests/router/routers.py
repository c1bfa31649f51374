"""A router on the test's event loop, and waiting for what it will do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import uvloop

from pointsman.dispatch.choosing import Choosing
from pointsman.dispatch.dispatcher import Rules
from pointsman.policies.catalogue import policy_named
from pointsman.policies.policy import Policy
from pointsman.router.listening import listener_on
from pointsman.router.replica_options import ReplicaOptions
from pointsman.router.router_settings import RouterSettings
from pointsman.router.service import Router
from pointsman.router.settings import Holding, Probing, Resilience
from pointsman.router.upstream import replica_address
from tests.router.fake_replicas import FakeReplica, Script, answer_json
from tests.router.raw_http import RawClient

PROBING = Probing(interval_ms=20.0, slow_start_ms=0.0)


def run(main: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(asyncio.wait_for(main, 60))


@asynccontextmanager
async def routing(
    urls: list[str],
    policy: str = "round_robin",
    log: Path | None = None,
    spare_slots: int = 0,
    complaints: list[str] | None = None,
    **given: Any,
):
    """Yields (router, port). What the router complains of is added to ``complaints``.

    ``given``: fields of Resilience or of RouterSettings, or the ``models`` of each replica. Probes
    come often, slow start is off, nothing is held and replicas are not asked for their models,
    where they do not say otherwise.
    """
    names = {field.name for field in fields(Resilience)}
    resilience = {name: value for name, value in given.items() if name in names}
    settings = {name: value for name, value in given.items() if name not in names}
    models = settings.pop("models", [()] * len(urls))
    addresses = [replica_address(url) for url in urls]
    options = list(map(ReplicaOptions, addresses, models))
    settings = {"models_interval_s": 0.0, "options": options, **settings}
    resilience = {"probing": PROBING, "holding": Holding(requests=0), **resilience}
    router = Router(
        RouterSettings(
            replicas=addresses,
            rules=Rules(policy_named(policy)),
            policy_name=policy.partition(":")[0],
            log_path=log,
            resilience=Resilience(**resilience),
            **settings,
            spare_slots=spare_slots,
        ),
        ([] if complaints is None else complaints).append,
    )
    with listener_on("127.0.0.1", 0) as listener:
        await router.start(listener)
        try:
            yield router, listener.getsockname()[1]
        finally:
            await router.stop(drain_s=0.0)
    router.dispatcher.ledger.check_invariants()


@dataclass
class Bench:
    """Fakes behind a router, and a client that is connected to it."""

    fakes: list[FakeReplica]
    router: Router
    port: int
    client: RawClient
    complaints: list[str]

    @property
    def fake(self) -> FakeReplica:
        return self.fakes[0]


@asynccontextmanager
async def bench(
    *scripts: Script,
    policy: str = "round_robin",
    log: Path | None = None,
    **settings: Any,
):
    """One fake a script, by default one that answers in JSON; yields a Bench."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        fakes = [await enter(FakeReplica(script)) for script in scripts or (answer_json,)]
        urls = [fake.url for fake in fakes]
        complaints: list[str] = []
        router, port = await enter(routing(urls, policy, log, complaints=complaints, **settings))
        yield Bench(fakes, router, port, await enter(RawClient(port)), complaints)


def rule_by(router: Router, policy: Policy) -> None:
    """From now on this policy chooses, which no flag can name."""
    dispatcher = router.dispatcher
    dispatcher.rules = Rules(policy, dispatcher.rules.seed)
    dispatcher._choosing = Choosing(policy)


async def until(condition: Callable[[], bool], within_s: float = 10.0) -> None:
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s, "the condition did not come true in time"
        await asyncio.sleep(0.002)


def chat(text: str = "Hello", **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text}], **fields}


def completion(prompt: Any = "Hello", **fields: Any) -> dict[str, Any]:
    return {"model": "m", "prompt": prompt, **fields}
