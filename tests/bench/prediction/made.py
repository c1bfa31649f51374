"""Rows as a client would have them of a simulated run, and groups by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from pointsman.bench.client.rows import Row
from pointsman.bench.experiment import Group, GroupRun
from pointsman.bench.prediction.limits import EngineLimits
from pointsman.bench.prediction.offered import Offered
from pointsman.costs.iteration import IterationCosts
from pointsman.evidence.metrics import NO_METRICS, Metrics
from pointsman.policies.catalogue import policy_named
from pointsman.sim.batching import BatchingFleet, Engine, simulate_fleet
from pointsman.sim.conditions import Conditions
from pointsman.sim.outcome import answers_of
from pointsman.workload.arrivals import PoissonArrivals
from pointsman.workload.distributions import distribution_of_text
from pointsman.workload.generate import SystemPrompts, Traffic, generate
from pointsman.workload.workload import Workload

COSTS = IterationCosts(2.0, 0.2, 0.5, 0.0005, 1e-5)
LIMITS = EngineLimits(max_num_seqs=4, max_num_batched_tokens=512, shares_late=True)
ALONE = GroupRun("g0", Group(name="g0", replicas=1), None)
MADE_AT = "2026-01-02T03:04:05+00:00"


def behind(policy: str, replicas: int = 2) -> GroupRun:
    group = Group(name=policy, replicas=replicas, policies=(policy,))
    return GroupRun(policy, group, policy)


def requests(count: int = 40, rate_rps: float = 6.0) -> Workload:
    """Prompts of some 120 tokens behind one of three shared beginnings of 64."""
    traffic = Traffic(
        requests=count,
        arrivals=PoissonArrivals(rate_rps),
        prompt_tokens=distribution_of_text("lognormal:mean=120,sigma=0.6", "prompt"),
        output_tokens=distribution_of_text("lognormal:mean=30,sigma=0.5", "output"),
        system_prompts=SystemPrompts(distribution_of_text("64", "system"), 3),
    )
    return generate(traffic, 7)


def row(number: int, **changes: object) -> Row:
    """A request that is sent at once and has its first token after 50 ms."""
    fields = {
        "number": number,
        "request_id": f"load-{number}",
        "asked_prompt_tokens": 100,
        "asked_output_tokens": 11,
        "intended_ms": 0.0,
        "sent_ms": 0.0,
        "first_token_ms": 50.0,
        "last_token_ms": 150.0,
        "prompt_tokens": 100,
        "output_tokens": 11,
        "cached_tokens": 0,
        "status": "ok",
        **changes,
    }
    return Row(**fields)


def rows_of_run(
    offered: Offered, policy: str, replicas: int, overhead_ms: float = 0.0
) -> list[Row]:
    """What the client would have seen, had the simulator been the engines."""
    engine = Engine(
        COSTS,
        kv_blocks=100_000,
        block_size=offered.block_size,
        max_num_seqs=LIMITS.max_num_seqs,
        max_num_batched_tokens=LIMITS.max_num_batched_tokens,
        shares_late=LIMITS.shares_late,
    )
    loop = offered.closed_loop
    if loop is not None:
        loop = replace(loop, think_ms=loop.think_ms + overhead_ms)
    fleet = BatchingFleet((engine,) * replicas, keeps_answers=False)
    conditions = Conditions(closed_loop=loop)
    answers = answers_of(simulate_fleet(offered.workload, policy_named(policy), fleet, conditions))
    begin_ms = answers.arrival_ms.min()
    columns = (answers.arrival_ms - overhead_ms, answers.first_token_ms, answers.finish_ms)
    sent, first, last = (np.asarray(column) - begin_ms + overhead_ms for column in columns)
    return [
        row(
            k,
            asked_prompt_tokens=int(answers.prompt_tokens[k]),
            prompt_tokens=int(answers.prompt_tokens[k]),
            asked_output_tokens=int(answers.output_tokens[k]),
            output_tokens=int(answers.output_tokens[k]),
            cached_tokens=int(answers.cached_tokens[k]),
            intended_ms=float(sent[k]),
            sent_ms=float(sent[k]),
            first_token_ms=float(first[k]),
            last_token_ms=float(last[k]),
        )
        for k in range(len(answers))
    ]


def metrics(**values: float) -> Metrics:
    """Those that are given; the others are null."""
    names = NO_METRICS.__struct_fields__
    return Metrics(**{name: values.get(name) for name in names})
