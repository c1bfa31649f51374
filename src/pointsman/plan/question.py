"""What is asked of a plan: objectives, policies, thresholds, how sure a verdict has to be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from pointsman.core.errors import InputError, wrong_value
from pointsman.metrics.goodput import Objectives
from pointsman.policies.catalogue import policy_named
from pointsman.policies.policy import Policy
from pointsman.sim.blocks import cache_chains
from pointsman.verdict.decide import Limits
from pointsman.verdict.uncertainty import check_level
from pointsman.workload.workload import Workload

DEFAULT_POLICIES = ("queue_aware", "locality_aware", "least_requests", "round_robin")

# How far the roofline may be from a recorded run in TPOT (docs/costs.md; held by
# tests/costs/test_roofline.py); it was 13 % off at most.
ROOFLINE_ERROR_FRACTION = 0.25

# The limits of the lesson on distributed inference.
LESSON_LIMITS = Limits(max_imbalance_ratio=0.8, max_comm_ratio=0.05)

# The smallest block of an engine and the largest: a trace's own block, where it is between them.
LEAST_BLOCK, MOST_BLOCK = 16, 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Objectives that ``attainment`` of all requests must keep, and what decides.

    ``policies`` are texts as ``policy_named`` takes them. ``model_error_fraction`` is how far
    service times may be off. Raises InputError for a value outside its range.
    """

    objectives: Objectives
    attainment: float = 0.95
    policies: tuple[str, ...] = DEFAULT_POLICIES
    limits: Limits = LESSON_LIMITS
    model_error_fraction: float = ROOFLINE_ERROR_FRACTION
    level: float = 0.95
    resamples: int = 400
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0.0 < self.attainment <= 1.0:
            raise wrong_value("plan", "attainment", self.attainment, "a number in 0..1, not 0")
        if not 0.0 <= self.model_error_fraction < 1.0:
            wanted = "a number in 0..1, not 1, such as 0.1"
            raise wrong_value("plan", "model_error", self.model_error_fraction, wanted)
        for name in ("max_imbalance_ratio", "max_comm_ratio"):
            value = getattr(self.limits, name)
            if not 0.0 <= value < math.inf:
                raise wrong_value("plan", name, value, "a finite number >= 0")
        check_level(self.level)
        if self.resamples < 2:
            raise wrong_value("plan", "replications", self.resamples, "an integer >= 2")
        _check_policies(self.policies)

    def policy_objects(self) -> tuple[Policy, ...]:
        """The policies, in their order."""
        return tuple(policy_named(text) for text in self.policies)

    def policy_labelled(self, label: str) -> Policy:
        """The one of that label."""
        return next(policy for policy in self.policy_objects() if policy.label == label)


def _check_policies(texts: Sequence[str]) -> None:
    if not texts:
        raise InputError("plan: no policy; expected at least one")
    labels = [policy_named(text).label for text in texts]
    for label in labels:
        if labels.count(label) > 1:
            raise wrong_value("plan", "policy", label, "each policy once")


def default_block_size(workload: Workload) -> int:
    """The trace's own block size where an engine could have it, else 16, vLLM's default.

    Only whole blocks of a trace are ever shared, so that smaller ones of the cache find no more.
    """
    size = workload.block_size_tokens
    if workload.chain_blocks.size and LEAST_BLOCK <= size <= MOST_BLOCK:
        return size
    return LEAST_BLOCK


def check_workloads(workloads: Sequence[Workload], block_size: int) -> None:
    """Refuse what cannot be planned for: no tokens, nothing whose rate can change, other blocks."""
    if not workloads:
        raise InputError("plan: no workload; expected at least one")
    for workload in workloads:
        where = f"plan: {workload.source.name}"
        if len(workload) < 2 or workload.span_ms <= 0.0:
            raise InputError(
                f"{where}: {len(workload)} requests over {workload.span_ms:g} ms; expected at"
                " least 2 that arrive at different times, for the rate is a part of the answer"
            )
        lacking = np.flatnonzero((workload.prompt_tokens < 1) | (workload.output_tokens < 1))
        if lacking.size:
            row = int(lacking[0])
            raise InputError(
                f"{where}: request {workload.names.request(row)} has"
                f" {_said(workload.prompt_tokens[row])} prompt tokens and"
                f" {_said(workload.output_tokens[row])} output tokens; expected at least 1 of each,"
                " for an engine is priced by its tokens"
            )
        cache_chains(workload, block_size)


def _said(tokens: int) -> str:
    return "no known number of" if tokens < 0 else str(tokens)
