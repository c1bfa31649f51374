"""A group as it is predicted before it runs: schema ``pointsman.prediction/1``."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from pointsman.bench.client.arrivals import OpenLoop
from pointsman.bench.experiment import SPLIT, GroupRun, policy_from
from pointsman.bench.prediction.calibrated import Calibrated
from pointsman.bench.prediction.handoff import LEFT_OUT, UNKNOWN, Handoff, split_of
from pointsman.bench.prediction.offered import Offered
from pointsman.bench.prediction.stages import Stages, stages_of
from pointsman.core.errors import InputError
from pointsman.costs.calibrated import figures_of, outside_range
from pointsman.costs.iteration import IterationCosts
from pointsman.evidence.folder import check_name, pretty, write_new
from pointsman.evidence.measured import MeasuredRun, Told, group_figures
from pointsman.evidence.metrics import MetricName, Metrics
from pointsman.fleet.objectives import with_objectives
from pointsman.metrics.concurrency import most_at_once
from pointsman.metrics.latency import Answers
from pointsman.metrics.rates import prompt_fraction
from pointsman.policies.catalogue import policy_named
from pointsman.policies.policy import Policy
from pointsman.policies.round_robin import round_robin
from pointsman.sim.batching import BatchingFleet, Engine, simulate_fleet
from pointsman.sim.batching_fleet import MAX_MODEL_LEN
from pointsman.sim.conditions import Conditions
from pointsman.sim.outcome import answers_of

FOLDER = "prediction/groups"
_SOURCE = Told(source="the simulator, with costs fitted to a measured replica")


class Predicted(msgspec.Struct, frozen=True, kw_only=True):
    """What a group will measure, under the names of the evidence.

    ``is_fitted``: it is the group that the costs are from, so that this is no prediction.
    ``reasons``: why a metric is null.
    """

    schema: Literal["pointsman.prediction/1"]
    group: str
    policy: str | None
    made_at: str  # time of day, ISO 8601
    fitted_to: str
    is_fitted: bool
    metrics: Metrics
    reasons: dict[MetricName, str]
    stages: Stages
    cached_token_fraction: float | None  # of finished requests' prompt tokens
    seeds: tuple[int, ...]
    costs: IterationCosts
    overhead_ms: float  # of each request before the engine
    costs_sha256: str
    workload_sha256: str | None
    remarks: tuple[str, ...]


def predict(
    calibrated: Calibrated,
    run: GroupRun,
    offered: Offered,
    made_at: str,
    handoff: Handoff | None = None,
) -> Predicted:
    """Simulate the group behind its own policy, offered the same requests.

    ``made_at``: the time of day, which is for the caller to read. Raises InputError for a group
    that a program of its own measures, and as ``simulate_fleet`` does.
    """
    if run.group.command:
        raise InputError(
            f"{run.name}: is measured by a program of its own, and what that does is not known;"
            " expected a group of replicas"
        )
    answers = [_answers(calibrated, run, offered, handoff, seed) for seed in offered.seeds]
    is_split = run.group.mode == SPLIT
    counted = [MeasuredRun(_counted(each, offered)) for each in answers]
    found = group_figures(counted, _told(is_split, handoff))
    return Predicted(
        schema="pointsman.prediction/1",
        group=run.name,
        policy=run.policy,
        made_at=made_at,
        fitted_to=calibrated.run.name,
        is_fitted=run.name == calibrated.run.name,
        metrics=found.metrics,
        reasons={name: detail.reason for name, detail in found.details.items() if detail.reason},
        stages=stages_of(found.metrics, is_split),
        cached_token_fraction=_cached_fraction([each.answers for each in counted]),
        seeds=offered.seeds,
        costs=calibrated.file.costs,
        overhead_ms=calibrated.overhead_ms,
        costs_sha256=hashlib.sha256(msgspec.json.encode(calibrated.file)).hexdigest(),
        workload_sha256=offered.workload_sha256,
        remarks=(
            *_remarks(calibrated, run, offered, answers),
            *((LEFT_OUT,) if is_split and handoff is None else ()),
        ),
    )


def write_prediction(folder: Path, predicted: Predicted) -> Path:
    """Write ``prediction/groups/GROUP.json`` in a label's folder. Raises InputError if there."""
    check_name("group", predicted.group)
    path = folder / FOLDER / f"{predicted.group}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_new(path, pretty(predicted))
    return path


def _answers(
    calibrated: Calibrated, run: GroupRun, offered: Offered, handoff: Handoff | None, seed: int
) -> Answers:
    fleet = _fleet(calibrated, run, offered, handoff)
    loop = offered.closed_loop
    before_ms = calibrated.overhead_ms
    if loop is not None:
        loop = replace(loop, think_ms=loop.think_ms + before_ms)
    conditions = Conditions(closed_loop=loop)
    answers = answers_of(
        simulate_fleet(offered.workload, _policy(run, offered), fleet, conditions, seed)
    )
    return replace(answers, arrival_ms=answers.arrival_ms - before_ms)


def _policy(run: GroupRun, offered: Offered) -> Policy:
    """The very one that the router will be told."""
    if run.policy is None:
        return round_robin
    text = policy_from(run.policy, offered.folder)
    (told,) = with_objectives([text], [policy_named(text)], offered.objectives)
    return told


def _fleet(
    calibrated: Calibrated, run: GroupRun, offered: Offered, handoff: Handoff | None
) -> BatchingFleet:
    split = split_of(run.group.prefills or 1, handoff) if run.group.mode == SPLIT else None
    engine = _engine(calibrated, offered)
    return BatchingFleet((engine,) * run.group.engines, split, keeps_answers=False)


def _engine(calibrated: Calibrated, offered: Offered) -> Engine:
    limits, facts = calibrated.limits, calibrated.file.engine
    blocks = limits.kv_blocks(offered.block_size)
    return Engine(
        costs=calibrated.file.costs,
        kv_blocks=_blocks_of_all(offered) if blocks is None else blocks,
        block_size=offered.block_size,
        max_num_seqs=min(limits.max_num_seqs, len(offered.workload)),
        max_num_batched_tokens=limits.max_num_batched_tokens,
        async_scheduling=facts.async_scheduling,
        max_model_len=limits.context_tokens or MAX_MODEL_LEN,
        shares_late=limits.shares_late,
    )


def _blocks_of_all(offered: Offered) -> int:
    """So many that the cache is never full."""
    workload = offered.workload
    tokens = workload.prompt_tokens.astype(np.int64) + workload.output_tokens
    return int(np.sum(tokens // offered.block_size + 1))


def _counted(answers: Answers, offered: Offered) -> Answers:
    """Without the warm-up, which is told as the load client tells it."""
    warmup = offered.warmup
    due_ms = answers.arrival_ms - answers.arrival_ms.min()
    kept = (np.arange(len(answers)) >= warmup.requests) & (due_ms >= warmup.ms)
    columns: dict[str, Any] = {each.name: getattr(answers, each.name) for each in fields(answers)}
    for name, column in columns.items():
        columns[name] = None if column is None else column[kept]
    return Answers(**columns)


def _cached_fraction(runs: Sequence[Answers]) -> float | None:
    cached = np.concatenate([each.cached_tokens[each.finished] for each in runs])
    prompt = np.concatenate([each.prompt_tokens[each.finished] for each in runs])
    return prompt_fraction(cached, prompt) if prompt.size else None


def _told(is_split: bool, handoff: Handoff | None) -> dict[MetricName, Told]:
    moved = Told(reason="nothing is handed off")
    if is_split:
        moved = Told(reason=UNKNOWN) if handoff is None else _SOURCE
    told: dict[MetricName, Told] = {
        "queue_wait_ms": _SOURCE,
        "kv_handoff_ms": moved,
        "kv_handoff_bytes": moved,
        "peak_memory_mb": Told(reason="memory is not simulated"),
    }
    return told


def _remarks(
    calibrated: Calibrated, run: GroupRun, offered: Offered, answers: Sequence[Answers]
) -> Iterator[str]:
    yield from calibrated.remarks
    yield from offered.remarks
    ours, theirs = calibrated.run.group, run.group
    if (ours.tp, ours.pp) != (theirs.tp, theirs.pp):
        yield (
            f"costs were fitted with tp {ours.tp} and pp {ours.pp}, and the group has tp"
            f" {theirs.tp} and pp {theirs.pp}: they are not its own"
        )
    if theirs.engines > 1 and not calibrated.has_router:
        yield (
            f"{calibrated.run.name} was measured without a router: what that takes of each request"
            " is in no prediction"
        )
    yield from outside_range(calibrated.file, figures_of(offered.workload, theirs.engines))
    cap = offered.loop.cap if isinstance(offered.loop, OpenLoop) else None
    most = max(_most_in_flight(each) for each in answers)
    if cap is not None and most > cap:
        yield (
            f"{most} requests are in flight at once in the simulated run, and the client keeps"
            f" back what is beyond {cap}: that is not simulated"
        )


def _most_in_flight(answers: Answers) -> int:
    finished = answers.finished
    ones = np.ones(int(finished.sum()), dtype=np.int64)
    return most_at_once(answers.arrival_ms[finished], answers.finish_ms[finished], ones)
