"""A serving group as a decision sees it, whoever wrote its file."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pointsman.evidence.envelope import Failure, Layout, Repeat, ServingGroup
from pointsman.evidence.metrics import METRIC_NAMES, MetricName
from pointsman.evidence.places import SHAPE_KEYS, canonical, fact
from pointsman.metrics.skew import skew_ratio

Value = str | int | float | None

REPLICA, SPLIT = "replica", "pd_disaggregated"


@dataclass(frozen=True, slots=True)
class Facts:
    """What two groups must share to be compared; None where the file does not say."""

    evidence_level: Value
    model: Value
    model_revision: Value
    tokenizer: Value
    tokenizer_revision: Value
    dtype: Value
    engine: Value
    engine_version: Value
    hardware: Value
    workload_sha256: Value
    requests: Value
    load: Value
    concurrency: Value
    max_tokens: Value
    cache: Value  # of the engines at the start of each repeat


@dataclass(frozen=True, slots=True)
class Shape:
    """What may be under test."""

    mode: Value
    replicas: Value
    tp: Value
    pp: Value
    policy: Value
    prefills: Value = None
    decodes: Value = None
    handoff: Value = None

    @property
    def is_single(self) -> bool:
        """Whether there is nothing to choose."""
        return self.replicas == 1


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric: of all repeats together, and of each; None with the reason."""

    value: float | None
    repeats: tuple[float, ...]  # empty where one of them has no value
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """One file. ``repeats`` counts runs; what ``imbalance_ratio`` and ``makespan_ms`` are, as in
    the lesson: (largest - smallest load) / mean over replicas, and the time for all requests."""

    name: str
    file: str
    sha256: str  # of the file
    facts: Facts
    shape: Shape
    figures: dict[MetricName, Figure]
    repeats: int
    makespan_ms: Figure
    imbalance_ratio: float | None
    goodput_fraction: float | None
    attainment: float | None
    failure: Failure | None
    remarks: tuple[str, ...] = ()


def group_of_envelope(envelope: ServingGroup, path: Path, content: bytes) -> Group:
    """One of our own files."""
    goodput = envelope.goodput
    repeats = envelope.repeats
    return Group(
        name=envelope.group,
        file=path.name,
        sha256=hashlib.sha256(content).hexdigest(),
        facts=_facts(envelope),
        shape=_shape(envelope.layout),
        figures={name: _figure(envelope, name) for name in METRIC_NAMES},
        repeats=len(repeats),
        makespan_ms=_makespan(repeats),
        imbalance_ratio=_imbalance(envelope),
        goodput_fraction=goodput.fraction if goodput else None,
        attainment=goodput.objectives.attainment if goodput else None,
        failure=envelope.failure or _invalid(repeats),
        remarks=_remarks(envelope),
    )


def group_of_lesson_file(document: dict[str, Any], path: Path, content: bytes) -> Group:
    """A file of somebody else, with the lesson's fields; it has been checked."""
    metrics, failure = document["metrics"], document["failure"]
    hardware, workload = document["hardware"], document["workload"]
    facts = {name: fact(document, name) for name in _SAME_NAMES}
    if facts["workload_sha256"] is None:
        facts["workload_sha256"] = canonical(workload, without=SHAPE_KEYS)
    return Group(
        name=str(document.get("group") or path.stem),
        file=path.name,
        sha256=hashlib.sha256(content).hexdigest(),
        facts=Facts(
            **facts,
            evidence_level=document["evidence_level"],
            hardware=canonical(hardware),
            load=None,
            cache=None,
        ),
        shape=Shape(**{name: fact(document, name) for name in _SHAPE_NAMES}),
        figures={
            name: Figure(metrics[name], (), None if metrics[name] is not None else "not said")
            for name in METRIC_NAMES
        },
        repeats=1,
        makespan_ms=Figure(None, (), "not said"),
        imbalance_ratio=0.0 if fact(document, "replicas") == 1 else None,
        goodput_fraction=None,
        attainment=None,
        failure=failure_of(failure),
        remarks=(f"{path.name} says nothing of repeats: its noise is not known",),
    )


_SAME_NAMES = (
    "model",
    "model_revision",
    "tokenizer",
    "tokenizer_revision",
    "dtype",
    "engine",
    "engine_version",
    "workload_sha256",
    "requests",
    "concurrency",
    "max_tokens",
)
_SHAPE_NAMES = ("mode", "replicas", "tp", "pp", "policy", "prefills", "decodes")


def failure_of(failure: Any) -> Failure | None:
    """A failure of any form; a string in older files."""
    if failure is None or failure in ("", False, {}):
        return None
    if isinstance(failure, dict):
        reason = failure.get("reason") or failure.get("message") or canonical(failure)
        return Failure(
            stage=str(failure.get("stage", "not said")),
            reason=str(reason),
            retry=str(failure.get("retry", "not said")),
        )
    return Failure(stage="not said", reason=str(failure), retry="not said")


def _facts(envelope: ServingGroup) -> Facts:
    backend, workload = envelope.backend, envelope.workload
    return Facts(
        evidence_level=envelope.evidence_level,
        model=backend.model.id,
        model_revision=backend.model.revision,
        tokenizer=backend.model.tokenizer,
        tokenizer_revision=backend.model.tokenizer_revision,
        dtype=backend.model.dtype,
        engine=backend.engine,
        engine_version=backend.version,
        hardware=canonical(envelope.hardware),
        workload_sha256=workload.sha256,
        requests=workload.requests,
        load=workload.load,
        concurrency="no cap" if workload.concurrency is None else workload.concurrency,
        max_tokens="no cap" if workload.max_tokens is None else workload.max_tokens,
        cache=", ".join(sorted({repeat.cache for repeat in envelope.repeats})) or None,
    )


def _shape(layout: Layout) -> Shape:
    return Shape(
        mode=layout.mode,
        replicas=layout.replicas,
        tp=layout.tp,
        pp=layout.pp,
        policy=layout.policy,
        prefills=layout.prefills,
        decodes=layout.decodes,
        handoff=layout.handoff,
    )


def _figure(envelope: ServingGroup, name: MetricName) -> Figure:
    each = [repeat.metrics.of(name) for repeat in envelope.repeats]
    known = tuple(value for value in each if value is not None)
    detail = envelope.details[name]
    value = envelope.metrics.of(name)
    return Figure(value, known if len(known) == len(each) else (), detail.reason)


def _makespan(repeats: tuple[Repeat, ...]) -> Figure:
    if not repeats:
        return Figure(None, (), "no repeat")
    each = tuple(repeat.makespan_ms for repeat in repeats)
    return Figure(sum(each) / len(each), each)


def _imbalance(envelope: ServingGroup) -> float | None:
    """The worst of all repeats and pools, in tokens; None where a load is not known."""
    if envelope.layout.replicas == 1:
        return 0.0
    ratios = []
    for repeat in envelope.repeats:
        if len(repeat.loads) != envelope.layout.replicas:
            return None
        for pool in {load.pool for load in repeat.loads}:
            tokens = [load.tokens for load in repeat.loads if load.pool == pool]
            ratios.append(skew_ratio(np.asarray(tokens)))
    return max(ratios, default=None)


def _invalid(repeats: tuple[Repeat, ...]) -> Failure | None:
    """A repeat that is no result makes the group none: the others are not chosen by hand."""
    for repeat in repeats:
        if repeat.invalid is not None:
            reason = f"repeat {repeat.number} is invalid: {repeat.invalid}"
            return Failure(stage="client", reason=reason, retry="run the group again")
    return None


def _remarks(envelope: ServingGroup) -> tuple[str, ...]:
    remarks = []
    lost = envelope.statuses and envelope.statuses.offered - envelope.statuses.ok
    if lost and envelope.statuses:
        remarks.append(f"{lost:,} of {envelope.statuses.offered:,} requests did not finish")
    if any(repeat.cache != "reset" for repeat in envelope.repeats):
        remarks.append("caches were not reset before each repeat")
    return (*remarks, *_shared_cores(envelope))


def _shared_cores(envelope: ServingGroup) -> tuple[str, ...]:
    """On CPUs the router and the client take what the engines could have."""
    layout, cores = envelope.layout, envelope.hardware.cores
    ranks = layout.replicas * layout.tp * layout.pp
    others = ["the client"] if layout.policy is None else ["the router", "the client"]
    if envelope.evidence_level != "real_engine_cpu" or ranks + len(others) <= cores:
        return ()
    names = " and ".join(others)
    return (
        f"{ranks} engine processes, {names} share {cores} cores: what they take from each other"
        " is in every figure",
    )
