"""From the repeats of a group to its evidence: one JSON file, and its requests in side files."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pointsman.bench.client.disturbance import Disturbance
from pointsman.bench.client.figures import Figures, figures, seen_of
from pointsman.bench.client.measure import Measured
from pointsman.bench.client.rows import OK, Row
from pointsman.bench.experiment import CLOSED, SPLIT, GroupRun
from pointsman.bench.groups import Bench, Repeated
from pointsman.bench.hardware import hardware_of
from pointsman.bench.identity import identity_of
from pointsman.bench.memory import GPU_SOURCE, HOST_SOURCE, NOT_OURS, NOT_TOLD
from pointsman.bench.requests import digest_of
from pointsman.bench.shapes import handoff_of
from pointsman.evidence import envelope
from pointsman.evidence.decision_file import our_version
from pointsman.evidence.envelope import DEFINITIONS, SCHEMA, Failure, ServingGroup
from pointsman.evidence.folder import write_envelope, write_rows
from pointsman.evidence.measured import (
    GroupFigures,
    MeasuredRun,
    Told,
    group_figures,
    no_figures,
)
from pointsman.evidence.metrics import MetricName, Metrics
from pointsman.metrics.rates import window_ms

PROJECT = "pointsman"
CLIENT = "client"


@dataclass(frozen=True, slots=True, eq=False)
class Backend:
    """What answered, as far as it is the same for all groups."""

    version: str | None
    model: envelope.Model
    hardware: envelope.Hardware
    workload: envelope.Workload


def backend_of(bench: Bench) -> Backend:
    """Looked at once, before anything runs."""
    return Backend(
        version=bench.engine.version(),
        model=identity_of(bench.model, bench.machine),
        hardware=hardware_of(bench.experiment.hardware.device, bench.environment),
        workload=_workload(bench),
    )


@dataclass(slots=True, eq=False)
class Collected:
    """What there is of one group so far. ``version``: as its running engine says."""

    run: GroupRun
    repeats: list[Repeated] = field(default_factory=list)
    commands: tuple[str, ...] = ()
    version: str | None = None
    failure: Failure | None = None


def write_group(bench: Bench, backend: Backend, collected: Collected) -> Path:
    """Write ``GROUP.json`` and a file of rows a repeat."""
    run, repeats, failure = collected.run, collected.repeats, collected.failure
    found = _figures(bench, repeats, failure)
    objectives = bench.experiment.slo.objectives() if bench.experiment.slo else None
    seen = [figures(each.measured, objectives) for each in repeats]
    written = tuple(
        _repeat(bench, run, repeated, each, metrics)
        for repeated, each, metrics in zip(
            repeats, seen, _each_repeat(bench, repeats, found), strict=True
        )
    )
    version = backend.version or collected.version
    group = ServingGroup(
        schema=SCHEMA,
        project=PROJECT,
        label=bench.folder.name,
        group=run.name,
        backend=envelope.Backend(
            engine=bench.experiment.engine.name,
            version=version,
            model=backend.model,
            commands=collected.commands,
            router_command=next((r.router_command for r in repeats if r.router_command), None),
        ),
        workload=backend.workload,
        layout=layout_of(bench, run),
        hardware=backend.hardware,
        metrics=found.metrics,
        definitions=DEFINITIONS,
        details=found.details,
        statuses=_statuses(seen) if seen else None,
        goodput=_goodput(bench, seen),
        repeats=written,
        versions=_versions(bench, version),
        evidence_level=(
            "real_engine_gpu" if bench.experiment.hardware.device == "gpu" else "real_engine_cpu"
        ),
        failure=failure,
        decision=None,
    )
    return write_envelope(bench.folder, group)


def layout_of(bench: Bench, run: GroupRun) -> envelope.Layout:
    """The shape of a group."""
    group = run.group
    handoff = handoff_of(group, bench.engine, bench.folder)
    is_split = group.mode == SPLIT
    return envelope.Layout(
        mode="pd_disaggregated" if is_split else "replica",
        replicas=group.engines,
        tp=group.tp,
        pp=group.pp,
        policy=run.policy,
        prefills=group.prefills if is_split else None,
        decodes=group.decodes if is_split else None,
        handoff=handoff.protocol if handoff else None,
    )


def _workload(bench: Bench) -> envelope.Workload:
    wanted, warmup = bench.experiment.workload, bench.experiment.warmup_requests
    counted, is_closed = bench.workload, wanted.load == CLOSED
    return envelope.Workload(
        id=wanted.id,
        sha256=digest_of(counted),
        requests=len(counted) - warmup,
        load="closed" if is_closed else "open",
        concurrency=wanted.concurrency,
        prompt_tokens=int(counted.prompt_tokens[warmup:].sum(dtype="int64")),
        output_tokens=int(counted.output_tokens[warmup:].sum(dtype="int64")),
        max_tokens=wanted.max_tokens,
        kv_bytes_per_token=wanted.kv_bytes_per_token,
        rate_rps=bench.loop.requested_rps(counted),
        think_time_ms=wanted.think_time_ms if is_closed else None,
        warmup_requests=warmup,
        seed=wanted.seed,
    )


def _figures(bench: Bench, repeats: Sequence[Repeated], failure: Failure | None) -> GroupFigures:
    if failure is not None:
        return no_figures(f"{failure.stage}: {failure.reason}")
    return group_figures([_measured(each) for each in repeats], told_of(bench, repeats))


def _each_repeat(
    bench: Bench, repeats: Sequence[Repeated], found: GroupFigures
) -> Sequence[Metrics]:
    """Each repeat's own metrics; also of a group that failed after it."""
    if found.repeats or not repeats:
        return found.repeats
    return group_figures([_measured(each) for each in repeats], told_of(bench, repeats)).repeats


def _measured(repeated: Repeated) -> MeasuredRun:
    rows = counted_rows(repeated.measured)
    return MeasuredRun(seen_of(rows, repeated.replicas).answers, repeated.peak_memory_mb)


def counted_rows(measured: Measured) -> list[Row]:
    """All but those of the warm-up."""
    return [row for row in measured.rows if not row.is_warmup]


def told_of(bench: Bench, repeats: Sequence[Repeated]) -> dict[MetricName, Told]:
    """Where what the client cannot see comes from, or why it is not known."""
    return {
        "peak_memory_mb": _memory_told(bench, repeats),
        "queue_wait_ms": Told(reason="not joined yet"),
        "kv_handoff_bytes": Told(reason="not joined yet"),
        "kv_handoff_ms": Told(reason="not joined yet"),
    }


def _memory_told(bench: Bench, repeats: Sequence[Repeated]) -> Told:
    if all(each.peak_memory_mb is not None for each in repeats):
        is_gpu = bench.experiment.hardware.device == "gpu"
        return Told(source=GPU_SOURCE if is_gpu else HOST_SOURCE)
    is_external = bench.experiment.engine.name == "external"
    return Told(reason=NOT_OURS if is_external else NOT_TOLD)


def _repeat(
    bench: Bench, run: GroupRun, repeated: Repeated, seen: Figures, metrics: Metrics
) -> envelope.Repeat:
    measured, answers = repeated.measured, _measured(repeated).answers
    return envelope.Repeat(
        number=repeated.number,
        position=repeated.position,
        seed=measured.seed,
        cache=repeated.cache,
        makespan_ms=window_ms(answers.arrival_ms, answers.finish_ms),
        metrics=metrics,
        statuses=_statuses([seen]),
        loads=_loads(run, repeated),
        disturbance=_disturbance(measured.disturbance, seen),
        invalid=_invalid(measured),
        warnings=seen.warnings,
        rows=write_rows(bench.folder, f"{run.name}-{repeated.number}", measured.rows),
    )


def _invalid(measured: Measured) -> str | None:
    reasons = list(measured.disturbance.bottleneck)
    if not measured.is_complete:
        offered = f"{len(measured.rows)} of {measured.planned} requests were offered"
        reasons.append(f"incomplete: {offered} before it was interrupted")
    return "; ".join(reasons) or None


def _statuses(seen: Sequence[Figures]) -> envelope.Statuses:
    total: Counter[str] = Counter()
    for each in seen:
        total.update(each.statuses)
    return envelope.Statuses(offered=sum(total.values()), **total)


def _goodput(bench: Bench, seen: Sequence[Figures]) -> envelope.Goodput | None:
    found = [each.metrics.goodput for each in seen if each.metrics.goodput is not None]
    slo = bench.experiment.slo
    if slo is None or not found:
        return None
    offered, met = sum(each.offered for each in found), sum(each.met for each in found)
    return envelope.Goodput(
        objectives=envelope.Objectives(
            ttft_ms=slo.ttft_ms,
            tpot_ms=slo.tpot_ms,
            e2el_ms=slo.e2el_ms,
            attainment=slo.attainment,
        ),
        offered=offered,
        met=met,
        fraction=met / offered if offered else None,
    )


def _loads(run: GroupRun, repeated: Repeated) -> tuple[envelope.ReplicaLoad, ...]:
    """What each replica got, by its place; a request of a split counts on both of its replicas."""
    rows = [row for row in counted_rows(repeated.measured) if row.sent_ms is not None]
    prefills = run.group.prefills or 0 if run.group.mode == SPLIT else 0
    loads = []
    for number, url in enumerate(repeated.replicas):
        own = [row for row in rows if url in (_decoder(row, repeated), row.prefill_replica)]
        tokens = sum((row.prompt_tokens or 0) + (row.output_tokens or 0) for row in own)
        loads.append(
            envelope.ReplicaLoad(
                replica=f"replica-{number}",
                pool="all" if not prefills else "prefill" if number < prefills else "decode",
                requests=len(own),
                tokens=tokens,
            )
        )
    return tuple(loads)


def _decoder(row: Row, repeated: Repeated) -> str | None:
    """The only replica has no router that would say so."""
    return row.replica or (repeated.replicas[0] if len(repeated.replicas) == 1 else None)


def _disturbance(found: Disturbance, seen: Figures) -> envelope.Disturbance:
    return envelope.Disturbance(
        schedule_delay_p99_ms=_amount(found.schedule_delay_ms.p99),
        loop_lag_p99_ms=_amount(found.loop_lag_ms.p99),
        client_queue_p99_ms=_amount(found.client_queue_ms.p99),
        requested_rps=found.requested_rps,
        achieved_rps=found.achieved_rps,
        coalesced=seen.coalesced,
    )


def _amount(value: float | None) -> float | None:
    """Stamps are rounded to a tenth of a us, so that a delay of nothing may be less than 0."""
    return None if value is None else max(0.0, value)


def _versions(bench: Bench, engine: str | None) -> dict[str, str]:
    found = {PROJECT: our_version(), "python": platform.python_version()}
    if engine is not None:
        found[bench.experiment.engine.name] = engine
    return found


def ended_well(repeats: Sequence[Repeated]) -> int:
    """Requests of all repeats that did."""
    return sum(row.status == OK for each in repeats for row in counted_rows(each.measured))
