"""The fleets of ``pointsman policies bench``: replicas alike, mixed, and seen late."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pointsman.core.errors import InputError, unknown_name, wrong_value
from pointsman.costs.iteration import IterationCosts
from pointsman.sim.batching import MAX_REPLICAS, BatchingFleet, Engine
from pointsman.sim.conditions import Conditions
from pointsman.sim.knowledge import Signals

# Round figures for an 8 B model on one data-centre GPU, and for a card that is 2 to 2.5 times
# slower and holds less; no engine was measured for them.
FAST_COSTS = IterationCosts(6.0, 0.05, 0.05, 1e-5, 5e-7)
SLOW_COSTS = IterationCosts(12.0, 0.125, 0.1, 2e-5, 1.25e-6)
FAST_KV_TOKENS = 1_024_000
SLOW_KV_TOKENS = 400_000
SLOW_SHARE = 0.4  # of a fast replica's prefill
MAX_NUM_SEQS = 128
MAX_NUM_BATCHED_TOKENS = 8192
LEAST_BLOCK_TOKENS = 16  # vllm-project/vllm's default block

CURRENT = Signals()
LATE = Signals(metrics_age_ms=1000.0, event_delay_ms=1000.0)
OTHER_REPLICAS = 8
MIXED, STALE = "mixed", "stale"
FLEETS = ("4", "16", MIXED, STALE)


@dataclass(frozen=True, slots=True)
class BenchFleet:
    """So many replicas, ``slow`` of them of the slower kind; the router's signals are ``signals``
    old."""

    name: str
    replicas: int
    slow: int = 0
    signals: Signals = CURRENT

    @property
    def title(self) -> str:
        """What it is, in words."""
        if self.slow:
            return f"{self.replicas} replicas, {self.slow} of them slower"
        late = f", gauges and cache events {LATE.metrics_age_ms / 1000:g} s old"
        plural = "" if self.replicas == 1 else "s"
        return f"{self.replicas} replica{plural}{late if self.signals == LATE else ''}"

    @property
    def size(self) -> float:
        """Its prefill, in fast replicas: what traffic is generated for."""
        return self.replicas - self.slow + SLOW_SHARE * self.slow

    @property
    def conditions(self) -> Conditions:
        """What surrounds it: an open loop, nothing held."""
        return Conditions(signals=self.signals)

    def assembled(self, block_size_tokens: int) -> BatchingFleet:
        """Its engines, with a cache that takes a trace's blocks as they are.

        Blocks smaller than vLLM's are put together to at least as large ones.
        """
        size = block_size_tokens * math.ceil(LEAST_BLOCK_TOKENS / block_size_tokens)
        fast = _engine(FAST_COSTS, FAST_KV_TOKENS, size)
        slow = _engine(SLOW_COSTS, SLOW_KV_TOKENS, size)
        return BatchingFleet((fast,) * (self.replicas - self.slow) + (slow,) * self.slow)


def _engine(costs: IterationCosts, kv_tokens: int, block_size: int) -> Engine:
    return Engine(
        costs,
        kv_blocks=kv_tokens // block_size,
        block_size=block_size,
        max_num_seqs=MAX_NUM_SEQS,
        max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
    )


def fleet_named(word: str) -> BenchFleet:
    """``mixed``, ``stale``, or a number of equal replicas.

    Raises InputError for another word, and for a number outside 1..4096.
    """
    if word == MIXED:
        return BenchFleet(word, OTHER_REPLICAS, slow=OTHER_REPLICAS // 2)
    if word == STALE:
        return BenchFleet(word, OTHER_REPLICAS, signals=LATE)
    if not (word.isascii() and word.isdigit()):
        raise unknown_name("--fleet", "fleet", word, (*FLEETS, "any number of replicas"))
    if not 1 <= int(word) <= MAX_REPLICAS:
        raise wrong_value("--fleet", "replicas", int(word), f"1..{MAX_REPLICAS}")
    return BenchFleet(word, int(word))


def fleets_named(text: str) -> list[BenchFleet]:
    """Several, with commas between them. Raises InputError for none, and for one named twice."""
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if words.count(word) > 1:
            raise InputError(f"--fleet {text}: {word} is given twice; expected each fleet once")
    return [fleet_named(word) for word in words]
