"""The loop in miniature, on real llama.cpp servers: route, log, replay, simulate, compare."""

from __future__ import annotations

import asyncio
import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from pointsman import FifoFleet, policy_named, simulate
from pointsman.bench.engines.tiny_model import tiny_model
from pointsman.cli.main import main
from pointsman.dispatch.log_file import Log, read_log
from pointsman.replay.replay import replay_same
from pointsman.replay.workload import workload_of_log
from tests.router.raw_http import RawClient
from tests.router.routers import run
from tests.router.serve_process import serving

pytestmark = pytest.mark.engine

for needed in ("xllamacpp", "gguf", "tokenizers"):
    pytest.importorskip(needed, reason=f"{needed} is missing: pip install pointsman[llamacpp]")

from tests.engine.llama_server import llama_server  # noqa: E402

GROUPS = 3  # sessions of a group share a system prompt
SESSIONS = 9  # an odd number: round robin moves a session at every turn
TURNS = 5
REPLICAS = 2


@dataclass(frozen=True)
class Routed:
    """What a run left behind."""

    log_path: Path
    cached_tokens: float  # by the engines' own counters
    prompt_tokens: float

    @property
    def log(self) -> Log:
        return read_log(self.log_path)


async def converse(port: int, session: int) -> None:
    """A conversation whose prompt grows by what was asked and what was answered."""
    group = session % GROUPS
    text = f"You are assistant number {group}. " + f"Rule {group}: be brief and precise. " * 60
    async with RawClient(port) as client:
        for turn in range(TURNS):
            text += f"\nQuestion {turn} of {session}: " + f"what about {session} and {turn}? " * 9
            body = {
                "prompt": text,
                "max_tokens": 12,
                "ignore_eos": True,
                "temperature": 0,
                "stream": turn % 2 == 1,
            }
            response = await client.post("/v1/completions", body, x_session_id=f"session {session}")
            assert response.status == 200
            assert response.is_whole
            text += answered(response.body, stream=body["stream"])


def answered(body: bytes, *, stream: bool) -> str:
    if not stream:
        return json.loads(body)["choices"][0]["text"]
    events = [line[6:] for line in body.split(b"\n") if line.startswith(b"data: ")]
    assert events[-1] == b"[DONE]"
    return "".join(json.loads(event)["choices"][0]["text"] for event in events[:-1])


async def converse_all(port: int) -> None:
    await asyncio.gather(*(converse(port, session) for session in range(SESSIONS)))


def routed_by(policy: str, folder: Path) -> Routed:
    """The conversations through fresh engines and a router of this policy."""
    folder.mkdir()
    log_path = folder / "decisions.jsonl"
    with ExitStack() as stack:
        engines = [
            stack.enter_context(llama_server(tiny_model(), folder / f"engine{number}.log"))
            for number in range(REPLICAS)
        ]
        replicas = [flag for engine in engines for flag in ("--replica", engine.url)]
        flags = [*replicas, "--policy", policy, "--decision-log", str(log_path)]
        router = stack.enter_context(serving(*flags))
        run(converse_all(router.port))
        assert router.stop() == 0
        return Routed(
            log_path,
            sum(engine.counter("prompt_tokens_cached_total") for engine in engines),
            sum(engine.counter("prompt_tokens_total") for engine in engines),
        )


@pytest.fixture(scope="module")
def local(tmp_path_factory) -> Routed:
    return routed_by("locality_aware:slack_ms=60000", tmp_path_factory.mktemp("loop") / "local")


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory) -> Routed:
    return routed_by("round_robin", tmp_path_factory.mktemp("loop") / "in_turn")


def test_locality_finds_more_in_the_engines_caches_than_round_robin(local, in_turn):
    def hit_fraction(routed: Routed) -> float:
        return routed.cached_tokens / (routed.cached_tokens + routed.prompt_tokens)

    assert local.cached_tokens > in_turn.cached_tokens
    assert hit_fraction(local) > hit_fraction(in_turn)


def test_the_default_policy_finds_more_in_the_engines_caches_than_round_robin(
    in_turn, tmp_path_factory
):
    ours = routed_by("fewest_misses", tmp_path_factory.mktemp("loop") / "fewest")
    assert ours.cached_tokens > in_turn.cached_tokens
    assert replay_same(ours.log).differences == []


def test_every_request_ended_well_with_the_engines_own_counts(local, in_turn):
    for routed in (local, in_turn):
        outcomes = routed.log.outcomes.values()
        assert len(outcomes) == SESSIONS * TURNS
        assert {outcome.status for outcome in outcomes} == {"ok"}
        assert {outcome.usage.output_tokens for outcome in outcomes} == {12}
        cached = sum(outcome.usage.cached_tokens for outcome in outcomes)
        assert cached == routed.cached_tokens
        prompt = sum(outcome.usage.prompt_tokens for outcome in outcomes)
        assert prompt == routed.cached_tokens + routed.prompt_tokens


def test_a_session_stays_where_it_was_until_it_would_wait_too_long(local):
    homes: dict[str, set[int]] = {}
    for choice in local.log.choices:
        homes.setdefault(choice.session, set()).add(choice.replica)
    assert len(homes) == SESSIONS
    assert all(len(replicas) == 1 for replicas in homes.values())


def test_the_logs_replay_to_the_same_choices(local, in_turn):
    for routed in (local, in_turn):
        result = replay_same(routed.log)
        assert (result.agreeing, result.choices) == (SESSIONS * TURNS, SESSIONS * TURNS)


def test_the_log_is_a_workload_that_the_simulator_takes(local):
    workload = workload_of_log(local.log_path)
    assert len(workload) == SESSIONS * TURNS
    assert workload.session_count == SESSIONS
    assert int(workload.output_tokens.sum()) == 12 * SESSIONS * TURNS
    assert workload.source.format.endswith(
        f"tokens of 0 of {SESSIONS * TURNS} requests are estimates"
    )
    fleet = FifoFleet(REPLICAS)
    stays = simulate(workload, policy_named("locality_aware:slack_ms=60000"), fleet)
    moves = simulate(workload, policy_named("round_robin"), fleet)
    assert stays.cached_tokens.sum() > moves.cached_tokens.sum()


# The commands of users, from the log to a comparison.


def test_the_commands_lead_from_the_log_to_a_comparison(local, tmp_path, capsys):
    trace = tmp_path / "W.jsonl"
    assert main(["replay", str(local.log_path)]) == 0
    assert main(["trace", "convert", str(local.log_path), "--output", str(trace)]) == 0
    assert len(trace.read_text().splitlines()) >= SESSIONS * TURNS
    capsys.readouterr()
    assert main(["compare", str(trace), "--replicas", str(REPLICAS), "--format", "json"]) == 0
    shown = capsys.readouterr().out
    assert "round_robin" in shown
    assert "locality_aware" in shown
