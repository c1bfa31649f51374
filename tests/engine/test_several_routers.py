"""Two routers before two real llama.cpp servers: what the engines' own counters say of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from pointsman.bench.engines.tiny_model import tiny_model
from tests.router.raw_http import RawClient
from tests.router.routers import run
from tests.router.serve_process import serving

pytestmark = pytest.mark.engine

for needed in ("xllamacpp", "gguf", "tokenizers"):
    pytest.importorskip(needed, reason=f"{needed} is missing: pip install pointsman[llamacpp]")

from tests.engine.llama_server import llama_server  # noqa: E402

SESSIONS = 8
TURNS = 6
REPLICAS = 2


@dataclass(frozen=True)
class Routed:
    """What a run left behind: the engines' counts, and the replicas that each session was on."""

    cached_tokens: float
    prompt_tokens: float  # that were computed
    replicas_of: list[set[int]]  # by session

    @property
    def hit_fraction(self) -> float:
        return self.cached_tokens / (self.cached_tokens + self.prompt_tokens)


async def converse(ports: Sequence[int], session: int) -> set[str]:
    """A conversation whose turns come to one router after the other; the replicas it was on."""
    text, urls = "", set()
    for turn in range(TURNS):
        text += f"\nQuestion {turn} of {session}: " + f"what about {session} and {turn}? " * 25
        body = {"prompt": text, "max_tokens": 4, "ignore_eos": True, "temperature": 0}
        async with RawClient(ports[(session + turn) % len(ports)]) as client:
            response = await client.post("/v1/completions", body, x_session_id=f"session {session}")
        assert response.status == 200
        urls.add(response.headers["x-pointsman-replica"])
    return urls


async def converse_all(ports: Sequence[int]) -> list[set[str]]:
    return await asyncio.gather(*(converse(ports, session) for session in range(SESSIONS)))


def routed_by(policy: str, routers: int, folder: Path) -> Routed:
    """The conversations through fresh engines and so many routers of this policy."""
    folder.mkdir()
    key = folder / "key"
    key.write_text("the same secret for all of them\n")
    with ExitStack() as stack:
        engines = [
            stack.enter_context(llama_server(tiny_model(), folder / f"engine{number}.log"))
            for number in range(REPLICAS)
        ]
        urls = [engine.url for engine in engines]
        replicas = [flag for url in urls for flag in ("--replica", url)]
        flags = [*replicas, "--policy", policy, "--session-key", str(key)]
        started = [stack.enter_context(serving(*flags)) for _ in range(routers)]
        found = run(converse_all([router.port for router in started]))
        assert [router.stop() for router in started] == [0] * routers
        return Routed(
            sum(engine.counter("prompt_tokens_cached_total") for engine in engines),
            sum(engine.counter("prompt_tokens_total") for engine in engines),
            [{urls.index(url) for url in session} for session in found],
        )


def test_two_routers_find_as_much_by_rendezvous_hash_as_one_and_less_each_by_its_own_index(
    tmp_path,
):
    """All turns of a session come to both in turn. By its name both send it to one replica; by
    what each has sent itself some sessions are on both, and half of what they ask for again is not
    where they are sent."""
    one = routed_by("session_affinity", 1, tmp_path / "one")
    hashed = routed_by("session_affinity", 2, tmp_path / "hashed")
    alone = routed_by("locality_aware:slack_ms=60000", 2, tmp_path / "alone")
    assert hashed.replicas_of == one.replicas_of
    assert all(len(replicas) == 1 for replicas in hashed.replicas_of)
    assert hashed.hit_fraction == pytest.approx(one.hit_fraction, abs=0.02)
    assert any(len(replicas) == 2 for replicas in alone.replicas_of)
    assert alone.hit_fraction < hashed.hit_fraction
