"""The same requests through several policies on a fleet that batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from pointsman.comparison.differences import Difference, Outcome, differences, outcome_of
from pointsman.comparison.locality_audit import LocalityAudit, audit_fleet
from pointsman.comparison.over_time import OverTime, over_time_of
from pointsman.comparison.own_intervals import own_intervals
from pointsman.core.errors import unknown_name, wrong_value
from pointsman.fleet.asked import asked_of_groups, most_of, range_warnings
from pointsman.fleet.description import FleetDescription
from pointsman.metrics.distribution import Quantiles, quantiles_of
from pointsman.metrics.goodput import Objectives
from pointsman.metrics.latency import Answers
from pointsman.metrics.reasons import ReasonsOverTime, reasons_over_time
from pointsman.metrics.replicas import ReplicaFigures, ReplicaLoads, Skews, replica_figures, skews
from pointsman.metrics.service import reason_counts
from pointsman.metrics.serving import ServingMetrics, serving_metrics
from pointsman.metrics.thrashing import thrashing_warnings
from pointsman.policies.policy import Policy, check_each_once
from pointsman.sim.batching import BatchingFleet, FleetRun, simulate_fleet
from pointsman.sim.outcome import answers_of, gaps_of, loads_of
from pointsman.verdict.uncertainty import Interval
from pointsman.workload.workload import Workload

EVERYWHERE = "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What the policies are held against, and the seed of all draws.

    ``baseline`` is the name or label of one of them; None takes the best. ``over_time`` keeps
    samples of every replica, ``own_intervals`` intervals of figures that stand alone. ``on_run``
    gets each policy's run before it is let go.
    """

    objectives: Objectives | None = None
    seed: int = 0
    baseline: str | None = None
    over_time: bool = False
    own_intervals: bool = False
    on_run: Callable[[FleetRun], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class FleetResult:
    """What one policy did with the workload.

    ``name`` is the policy's, with its parameters only where another one compared has that name.
    ``replicas`` and ``skews`` go by the work that each pool has: of a split fleet the prefill
    replicas by prompts computed, the decode replicas by answers generated. ``to_baseline`` is
    empty for the baseline, ``to_best`` for the best.
    """

    policy: Policy
    name: str
    metrics: ServingMetrics
    reasons: dict[str, int]
    replicas: tuple[ReplicaFigures, ...]
    skews: dict[str, Skews]
    outcome: Outcome
    to_baseline: tuple[Difference, ...] = ()
    to_best: tuple[Difference, ...] = ()
    audit: LocalityAudit | None = None  # of policies that choose locality within a bound
    over_time: OverTime | None = None  # where it was asked for
    quantiles: dict[str, Quantiles] = field(default_factory=dict)  # of latencies and the hand-off
    reasons_over_time: ReasonsOverTime | None = None
    intervals: dict[str, Interval | None] = field(default_factory=dict)  # where asked for


@dataclass(frozen=True, slots=True)
class FleetComparison:
    """All policies on one workload and fleet, the best first."""

    workload: Workload
    description: FleetDescription
    fleet: BatchingFleet
    trial: Trial
    baseline: Policy
    results: tuple[FleetResult, ...]
    warnings: tuple[str, ...]


def compare_on_fleet(
    workload: Workload,
    policies: Sequence[Policy],
    description: FleetDescription,
    trial: Trial,
    on_policy: Callable[[Policy], None] = lambda _: None,
) -> FleetComparison:
    """Run every policy on the same requests; sorted by goodput where there are objectives, then
    by P95 TTFT.

    ``on_policy`` is called before each run. Raises InputError for no policies, for two that are
    the same, for a baseline that is none of them, and as ``simulate_fleet`` does.
    """
    check_each_once("compare", policies)
    if trial.baseline is not None:
        _named(policies, trial.baseline)
    fleet = description.assembled(workload)
    results, asked = [], []
    for policy in policies:
        on_policy(policy)
        run = simulate_fleet(workload, policy, fleet, description.conditions, trial.seed)
        trial.on_run(run)
        name = _short_name(policy, policies)
        results.append(_result(run, name, description.gpus, trial))
        asked.append(asked_of_groups(run, description))
    results.sort(key=_rank)
    best = results[0]
    baseline = best.policy if trial.baseline is None else _named(policies, trial.baseline)
    return FleetComparison(
        workload=workload,
        description=description,
        fleet=fleet,
        trial=trial,
        baseline=baseline,
        results=tuple(_with_differences(results, baseline, trial.seed)),
        warnings=(
            *range_warnings(description, most_of(asked)),
            *thrashing_warnings((each.name, each.metrics) for each in results),
        ),
    )


def _named(policies: Sequence[Policy], name: str) -> Policy:
    """The policy of that label, or the only one of that name."""
    found = [policy for policy in policies if name in (policy.label, policy.name)]
    if len(found) > 1:
        labels = ", ".join(policy.label for policy in found)
        raise wrong_value("compare", "baseline", name, f"one policy's label: {labels}")
    if not found:
        raise unknown_name("compare", "baseline", name, [policy.label for policy in policies])
    return found[0]


def _short_name(policy: Policy, policies: Sequence[Policy]) -> str:
    namesakes = sum(other.name == policy.name for other in policies)
    return policy.name if namesakes == 1 else policy.label


def _result(run: FleetRun, name: str, gpus: int, trial: Trial) -> FleetResult:
    answers, loads = answers_of(run), loads_of(run)
    metrics = serving_metrics(answers, loads, trial.objectives, gpus, gaps_of(run))
    replicas, pools = _pools(run, answers, loads, metrics)
    outcome = outcome_of(answers, trial.objectives)
    return FleetResult(
        policy=run.policy,
        name=name,
        metrics=metrics,
        reasons=reason_counts(run.reason, run.policy.reasons),
        replicas=replicas,
        skews=pools,
        outcome=outcome,
        quantiles=_quantiles(answers),
        reasons_over_time=reasons_over_time(run.arrival_ms, run.reason, run.policy.reasons),
        audit=audit_fleet(run),
        over_time=over_time_of(run) if trial.over_time else None,
        intervals=own_intervals(outcome, trial.seed) if trial.own_intervals else {},
    )


def _quantiles(answers: Answers) -> dict[str, Quantiles]:
    columns = {
        "queue_wait_ms": answers.queue_wait_ms,
        "ttft_ms": answers.ttft_ms,
        "tpot_ms": answers.tpot_ms,
        "e2e_ms": answers.e2e_ms,
    }
    if answers.handoff_ms is not None:
        columns["handoff_ms"] = answers.of_finished(answers.handoff_ms)
    return {name: quantiles_of(column) for name, column in columns.items()}


def _pools(
    run: FleetRun, answers: Answers, loads: ReplicaLoads, metrics: ServingMetrics
) -> tuple[tuple[ReplicaFigures, ...], dict[str, Skews]]:
    if run.fleet.split is None:
        return metrics.replicas, {EVERYWHERE: metrics.skews}
    count = run.fleet.split.prefill
    by_decode = replica_figures(replace(answers, replica=run.decode_replica), loads)
    prefills = metrics.replicas[:count]
    decodes = tuple(replace(each, cached_token_fraction=None) for each in by_decode[count:])
    return (*prefills, *decodes), {"prefill": skews(prefills), "decode": skews(decodes)}


def _rank(result: FleetResult) -> tuple[float, float]:
    goodput, p95_ms = result.metrics.goodput, result.metrics.ttft_ms.p95
    met = 0.0 if goodput is None or goodput.fraction is None else goodput.fraction
    return (-met, math.inf if p95_ms is None else p95_ms)


def _with_differences(
    results: Sequence[FleetResult], baseline: Policy, seed: int
) -> list[FleetResult]:
    """Each with its differences to the best and to the baseline; all from the same resamples."""
    best = results[0]
    (base,) = (result for result in results if result.policy == baseline)
    outcomes = [result.outcome for result in results]
    to_best = differences(outcomes, best.outcome, seed)
    to_base = to_best if base is best else differences(outcomes, base.outcome, seed)
    return [
        replace(
            result,
            to_best=() if result is best else to_best[k],
            to_baseline=() if result is base else to_base[k],
        )
        for k, result in enumerate(results)
    ]
