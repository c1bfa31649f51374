"""Fleets of replicas that batch: each engine, and what is between prefill and decode."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pointsman.core.checks import check_integer, check_number
from pointsman.core.errors import wrong_value
from pointsman.costs.iteration import IterationCosts
from pointsman.sim.batching_state import NONE
from pointsman.workload.workload import Ints

MAX_REPLICAS = 1 << 12

MAX_MODEL_LEN = 2**31 - 1

ENGINE_LIMITS = (
    "kv_blocks",
    "block_size",
    "max_num_seqs",
    "max_num_batched_tokens",
    "max_model_len",
)


@dataclass(frozen=True, slots=True)
class Engine:
    """One replica: vLLM's own flags, its cache, and what its iterations take.

    ``kv_blocks`` blocks of ``block_size`` tokens. ``reserve_full`` admits a request only where all
    its tokens fit (``scheduler_reserve_full_isl`` of vLLM 0.19). ``async_scheduling``: an arrival
    during an iteration is seen one iteration later. ``max_model_len``: tokens of prompt and output
    together. ``by_priority``: the lowest ``priority`` goes first, and is preempted last.
    ``shares_late``: others find what a request computed once it has ended, as in llama.cpp, whose
    slots share nothing while they run.
    """

    costs: IterationCosts
    kv_blocks: int
    block_size: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    reserve_full: bool = True
    async_scheduling: bool = False
    max_model_len: int = MAX_MODEL_LEN
    by_priority: bool = False
    shares_late: bool = False

    def __post_init__(self) -> None:
        for name in ENGINE_LIMITS:
            check_integer("engine", name, getattr(self, name), 1)
        for name in IterationCosts.__struct_fields__:
            check_number("engine costs", name, getattr(self.costs, name))
        check_number("engine costs", "per_iteration_ms", self.costs.per_iteration_ms, above=0.0)


@dataclass(frozen=True, slots=True)
class Split:
    """Prefill and decode apart: the first ``prefill`` replicas do the one, the others the other.

    A hand-off takes ``base_ms`` and the prompt's KV, ``kv_bytes_per_token``, over one link of
    ``bytes_per_ms``; transfers at the same time share it unless ``contention`` is off. Blocks that
    the decode replica holds are not moved unless ``moves_all``.
    """

    prefill: int
    kv_bytes_per_token: float
    bytes_per_ms: float
    base_ms: float = 0.0
    contention: bool = True
    moves_all: bool = False

    def __post_init__(self) -> None:
        check_integer("split", "prefill", self.prefill, 1)
        for name in ("kv_bytes_per_token", "base_ms"):
            check_number("split", name, getattr(self, name))
        check_number("split", "bytes_per_ms", self.bytes_per_ms, above=0.0)


@dataclass(frozen=True, slots=True)
class BatchingFleet:
    """Replicas, alike or not; the cache's block size is the same on all.

    ``keeps_answers``: the next turn of a session sends back what the engine generated; without, as
    from a client whose answers are text of its own, only prompts are hit.
    """

    engines: tuple[Engine, ...]
    split: Split | None = None
    keeps_answers: bool = True

    def __post_init__(self) -> None:
        if not 1 <= len(self.engines) <= MAX_REPLICAS:
            raise wrong_value("fleet", "replicas", len(self.engines), f"1..{MAX_REPLICAS}")
        sizes = {engine.block_size for engine in self.engines}
        if len(sizes) > 1:
            raise wrong_value("fleet", "block_size", sorted(sizes), "one size on all replicas")
        if self.split is not None and self.split.prefill >= len(self.engines):
            wanted = f"at most {len(self.engines) - 1}, so that a replica is left to decode"
            raise wrong_value("fleet", "prefill replicas", self.split.prefill, wanted)

    @classmethod
    def of(cls, engine: Engine, replicas: int) -> BatchingFleet:
        """So many replicas of one kind."""
        return cls((engine,) * replicas)

    @property
    def candidates(self) -> Ints:
        """What a policy chooses from, a row each: a replica and -1, or a prefill and a decode, and
        its number.

        Pairs stand so that one after the other takes turns in both pools.
        """
        count = len(self.engines)
        if self.split is None:
            number = np.arange(count)
            return np.column_stack((number, np.full(count, NONE), number)).astype(np.int32)
        prefills, decodes = self.split.prefill, count - self.split.prefill
        turn, prefill = np.divmod(np.arange(prefills * decodes), prefills)
        decode = prefills + (turn + prefill) % decodes
        number = np.arange(prefills * decodes)
        return np.column_stack((prefill, decode, number)).astype(np.int32)
