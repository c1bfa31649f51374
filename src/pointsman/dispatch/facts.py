"""What a router knows of a replica beforehand: what its iterations cost, what it has room for."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from pointsman.core.errors import wrong_value
from pointsman.core.files import read_file
from pointsman.costs.calibrated import SCHEMA, read_calibrated
from pointsman.costs.files import read_costs
from pointsman.costs.iteration import IterationCosts
from pointsman.workload.workload import MAX_TIME_MS

# Where nobody says what iterations cost: of the order of an 8B model on a current GPU. What is
# learned corrects them; between replicas that are alike only their proportions matter.
DEFAULT_COSTS = IterationCosts(
    per_iteration_ms=6.0,
    per_prefill_token_ms=0.05,
    per_decode_ms=0.05,
    per_kv_token_ms=1e-5,
    per_attention_ms=5e-7,
)

LONGEST_PROMPT_TOKENS = 1 << 27  # twice the bytes of the largest body that the router takes


class ReplicaFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of a replica beforehand; 0: not known."""

    costs: IterationCosts = DEFAULT_COSTS
    max_num_seqs: int = 0
    kv_tokens: int = 0


def check_facts(where: str, facts: ReplicaFacts) -> None:
    """Raises InputError for costs below 0, and for ones that price a longest prompt beyond all
    clocks."""
    costs = facts.costs
    for name in costs.__struct_fields__:
        if not 0.0 <= getattr(costs, name) < math.inf:
            raise wrong_value(where, name, getattr(costs, name), "a finite number >= 0")
    tokens = LONGEST_PROMPT_TOKENS
    dearest_ms = tokens * (costs.per_prefill_token_ms + costs.per_attention_ms * tokens)
    if not dearest_ms <= MAX_TIME_MS:
        what = f"the prefill of {tokens} tokens"
        raise wrong_value(where, what, dearest_ms, f"at most {MAX_TIME_MS:g} ms")
    for name in ("max_num_seqs", "kv_tokens"):
        if getattr(facts, name) < 0:
            raise wrong_value(where, name, getattr(facts, name), "an integer >= 0")


def read_facts(path: Path) -> ReplicaFacts:
    """From what ``calibrate`` wrote, or cost constants (``docs/costs.md``) of a single server: a
    prompt's and an answer's tokens, and nothing else.

    Raises InputError as the readers of these files and ``check_facts`` do.
    """
    if path.suffix == ".json" and SCHEMA.encode() in read_file(path):
        file = read_calibrated(path)
        engine = file.engine
        facts = ReplicaFacts(
            costs=file.iteration_costs(),
            max_num_seqs=engine.max_num_seqs * engine.engine_cores,
            kv_tokens=(engine.kv_blocks or 0) * engine.block_size * engine.engine_cores,
        )
    else:
        constants = read_costs(path)
        facts = ReplicaFacts(
            costs=IterationCosts(
                per_iteration_ms=0.0,
                per_prefill_token_ms=constants.prefill_ms_per_token,
                per_decode_ms=constants.decode_ms_per_token,
                per_kv_token_ms=0.0,
            )
        )
    check_facts(str(path), facts)
    return facts
