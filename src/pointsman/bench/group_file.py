"""From the repeats of a group to its evidence: one JSON file, and its requests in side files."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from pointsman.bench.client.disturbance import Disturbance
from pointsman.bench.client.figures import Figures, figures
from pointsman.bench.client.measure import Measured
from pointsman.bench.client.rows import Row
from pointsman.bench.experiment import CLOSED, SPLIT, GroupRun
from pointsman.bench.groups import Bench, Repeated
from pointsman.bench.hardware import hardware_of
from pointsman.bench.identity import identity_of
from pointsman.bench.memory import GPU_SOURCE, HOST_SOURCE, NOT_OURS, NOT_TOLD
from pointsman.bench.odd_repeats import odd_repeats
from pointsman.bench.requests import digest_of
from pointsman.bench.shapes import handoff_of
from pointsman.bench.stages.joined import Joined, JoinedLoad, joined
from pointsman.bench.stages.served import ServedLoad
from pointsman.evidence import envelope
from pointsman.evidence.decision_file import our_version
from pointsman.evidence.envelope import DEFINITIONS, SCHEMA, Failure, ServingGroup
from pointsman.evidence.folder import write_envelope, write_rows
from pointsman.evidence.measured import (
    MeasuredRun,
    Told,
    group_figures,
    no_figures,
)
from pointsman.evidence.metrics import MetricName, Metrics
from pointsman.metrics.rates import window_ms

PROJECT = "pointsman"
NO_REPEAT = "nothing was measured"


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
    seen = _seen(bench, run, repeats)
    own = group_figures(seen.runs, seen.told) if repeats else no_figures(NO_REPEAT)
    found = own if failure is None else no_figures(f"{failure.stage}: {failure.reason}")
    # What runs already is not what would be started here.
    version = (None if run.group.urls else backend.version) or collected.version
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
        statuses=_statuses(seen.figures) if repeats else None,
        goodput=_goodput(bench, seen.figures),
        repeats=tuple(_repeats(bench, collected, seen, own.repeats)),
        stages=_stages(seen.joined),
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


@dataclass(frozen=True, slots=True, eq=False)
class _SeenRepeat:
    figures: Figures
    joined: JoinedLoad


@dataclass(frozen=True, slots=True, eq=False)
class _Seen:
    """All repeats: the client's figures, and their requests with their stages."""

    figures: tuple[Figures, ...]
    joined: Joined | None
    runs: tuple[MeasuredRun, ...]
    told: dict[MetricName, Told]

    def of(self, place: int) -> _SeenRepeat:
        assert self.joined is not None  # there is a repeat
        return _SeenRepeat(self.figures[place], self.joined.loads[place])


def _seen(bench: Bench, run: GroupRun, repeats: Sequence[Repeated]) -> _Seen:
    if not repeats:
        return _Seen((), None, (), {})
    objectives = bench.experiment.slo.objectives() if bench.experiment.slo else None
    whole = joined(repeats[0].served, [_load(each) for each in repeats])
    return _Seen(
        figures=tuple(figures(each.measured, objectives) for each in repeats),
        joined=whole,
        runs=tuple(
            MeasuredRun(load.answers, each.peak_memory_mb)
            for load, each in zip(whole.loads, repeats, strict=True)
        ),
        told={**whole.told, "peak_memory_mb": _memory_told(bench, run, repeats)},
    )


def _load(repeated: Repeated) -> ServedLoad:
    log = repeated.decision_log
    return ServedLoad(
        repeated.measured.rows,
        (log,) if log is not None else (),
        repeated.before,
        repeated.after,
    )


def _stages(found: Joined | None) -> tuple[envelope.StageMean, ...]:
    """Those that are known."""
    if found is None:
        return ()
    means = ((name, getattr(found.stages, name)) for name in envelope.STAGE_NAMES)
    return tuple(
        envelope.StageMean(name=name, mean_ms=mean.mean_ms, count=mean.count)
        for name, mean in means
        if mean is not None
    )


def counted_rows(measured: Measured) -> list[Row]:
    """All but those of the warm-up."""
    return [row for row in measured.rows if not row.is_warmup]


def _memory_told(bench: Bench, run: GroupRun, repeats: Sequence[Repeated]) -> Told:
    if all(each.peak_memory_mb is not None for each in repeats):
        is_gpu = bench.experiment.hardware.device == "gpu"
        return Told(source=GPU_SOURCE if is_gpu else HOST_SOURCE)
    return Told(reason=NOT_OURS if run.group.urls else NOT_TOLD)


def _repeats(
    bench: Bench, collected: Collected, seen: _Seen, metrics: Sequence[Metrics]
) -> Iterator[envelope.Repeat]:
    odd = odd_repeats([each.e2e_ms for each in metrics])
    for place, repeated in enumerate(collected.repeats):
        found = _repeat(bench, collected.run, repeated, seen.of(place), metrics[place])
        warnings = found.warnings if (first := odd[place]) is None else (first, *found.warnings)
        yield msgspec.structs.replace(found, warnings=warnings)


def _repeat(
    bench: Bench, run: GroupRun, repeated: Repeated, seen: _SeenRepeat, metrics: Metrics
) -> envelope.Repeat:
    measured, answers = repeated.measured, seen.joined.answers
    return envelope.Repeat(
        number=repeated.number,
        position=repeated.position,
        seed=measured.seed,
        cache=repeated.cache,
        makespan_ms=window_ms(answers.arrival_ms, answers.finish_ms),
        metrics=metrics,
        statuses=_statuses([seen.figures]),
        loads=_loads(run, repeated, seen.joined.rows),
        disturbance=_disturbance(measured.disturbance, seen.figures),
        invalid=_invalid(measured),
        warnings=seen.figures.warnings,
        rows=write_rows(bench.folder, f"{run.name}-{repeated.number}", seen.joined.rows),
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


def _loads(
    run: GroupRun, repeated: Repeated, joined_rows: Sequence[Row]
) -> tuple[envelope.ReplicaLoad, ...]:
    """What each replica got, by its place; a request of a split counts on both of its replicas."""
    rows = [row for row in joined_rows if not row.is_warmup and row.sent_ms is not None]
    prefills = run.group.prefills or 0 if run.group.mode == SPLIT else 0
    loads = []
    for number, url in enumerate(repeated.served.urls):
        own = [row for row in rows if url in (_decoder(row, repeated), row.prefill_replica)]
        tokens = sum(_tokens(row) for row in own)
        loads.append(
            envelope.ReplicaLoad(
                replica=f"replica-{number}",
                pool="all" if not prefills else "prefill" if number < prefills else "decode",
                requests=len(own),
                tokens=tokens,
            )
        )
    return tuple(loads)


def _tokens(row: Row) -> int:
    """Of an answer that never told its prompt's length, those that were asked."""
    prompt = row.asked_prompt_tokens if row.prompt_tokens is None else row.prompt_tokens
    return prompt + (row.output_tokens or 0)


def _decoder(row: Row, repeated: Repeated) -> str | None:
    """The only replica has no router that would say so."""
    return row.replica or (repeated.served.urls[0] if len(repeated.served.urls) == 1 else None)


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
