"""The load client against a real llama.cpp server: lengths, prefixes, counts are the engine's."""

from __future__ import annotations

import numpy as np
import pytest

from pointsman.bench.client.arrivals import ClosedLoop, OpenLoop
from pointsman.bench.client.figures import figures
from pointsman.bench.client.load import Load
from pointsman.bench.client.measure import send_load
from pointsman.bench.client.target import Target
from pointsman.workload.workload import workload_of_columns
from tests.bench.client.stand_in import run
from tests.engine.llama_server import llama_server

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")
pytest.importorskip("tokenizers")
pytestmark = pytest.mark.engine

# Three conversations of four turns each, 64 tokens a block; each turn adds a block to the chain.
TURNS, SESSIONS, BLOCK = 4, 3, 64
CHAINS = [
    [10 * session + block for block in range(turn + 1)]
    for turn in range(TURNS)
    for session in range(SESSIONS)
]
CONVERSATIONS = workload_of_columns(
    np.arange(len(CHAINS)) * 40.0,
    prompt_tokens=[BLOCK * len(chain) + 9 for chain in CHAINS],
    output_tokens=[8] * len(CHAINS),
    session=[row % SESSIONS for row in range(len(CHAINS))],
    chain_start=np.cumsum([0, *map(len, CHAINS)]),
    chain_blocks=[block for chain in CHAINS for block in chain],
    block_size_tokens=BLOCK,
)

SEEDS = {"completions": 1, "chat": 2}  # other prompts for each API: no cache of one helps the other


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    from pointsman.bench.engines.tiny_model import tiny_model

    with llama_server(tiny_model(), tmp_path_factory.mktemp("log") / "engine.log") as engine:
        yield engine


@pytest.mark.parametrize("api", ["completions", "chat"])
@pytest.mark.parametrize("how", [OpenLoop(), ClosedLoop(SESSIONS)], ids=["open", "closed"])
def test_prompts_and_answers_are_as_long_as_the_workload_says(engine, api, how):
    target = Target(engine.url, "tiny", "llamacpp", api)
    found = figures(run(send_load(target, Load(CONVERSATIONS, how, seed=SEEDS[api]))))
    assert found.statuses["ok"] == len(CHAINS)
    assert found.prompt_lengths.different == 0
    assert found.output_lengths.different == 0
    assert found.finish_reasons == {"length": len(CHAINS)}
    assert found.tokens_from == {"usage": len(CHAINS)}


def test_what_conversations_share_is_found_in_the_engines_cache(engine):
    """One user a conversation: a turn's prompt but for its last block was sent the turn before."""
    target = Target(engine.url, "tiny", "llamacpp")
    result = run(send_load(target, Load(CONVERSATIONS, ClosedLoop(SESSIONS), seed=3)))
    for row in result.rows:
        shared_blocks = row.number // SESSIONS
        if shared_blocks:
            assert row.cached_tokens >= BLOCK * shared_blocks - 1


def test_every_chunk_says_how_many_tokens_it_brought(engine):
    target = Target(engine.url, "tiny", "llamacpp")
    result = run(send_load(target, Load(CONVERSATIONS, ClosedLoop(1), seed=4)))
    assert result.gaps.tokens.sum() + sum(row.first_chunk_tokens for row in result.rows) == 8 * len(
        CHAINS
    )
