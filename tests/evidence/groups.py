"""Measured groups as tests need them: three repeats of 100 requests, with real-looking figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from pointsman.evidence.envelope import (
    DEFINITIONS,
    SCHEMA,
    Backend,
    Detail,
    Hardware,
    Layout,
    Model,
    Repeat,
    ReplicaLoad,
    ServingGroup,
    Statuses,
    Workload,
)
from pointsman.evidence.folder import write_envelope
from pointsman.evidence.metrics import DEFINITIONS as METRICS
from pointsman.evidence.metrics import METRIC_NAMES, Metrics

ONE = Layout(mode="replica", replicas=1, tp=1, pp=1, policy=None)
TWO = Layout(mode="replica", replicas=2, tp=1, pp=1, policy="fewest_misses")
SPLIT = Layout(
    mode="pd_disaggregated",
    replicas=2,
    tp=1,
    pp=1,
    policy="fewest_misses",
    prefills=1,
    decodes=1,
    handoff="llamacpp",
)
WORKLOAD = Workload(
    id="conversation",
    sha256="ab" * 32,
    requests=100,
    load="open",
    concurrency=8,
    prompt_tokens=51_200,
    output_tokens=6_400,
    max_tokens=64,
    kv_bytes_per_token=16_384.0,
    rate_rps=4.0,
    seed=7,
)
BACKEND = Backend(
    engine="llamacpp",
    version="b6700",
    model=Model(
        id="tiny", revision="r1", tokenizer="tiny", tokenizer_revision="r1", dtype="float16"
    ),
)
HARDWARE = Hardware(cpu="two cores", cores=2, memory_mb=8192.0)
SLOW = {
    "ttft_ms": (400.0, 410.0, 420.0),
    "tpot_ms": (10.0, 10.1, 10.2),
    "e2e_ms": (1000.0, 1020.0, 1040.0),
    "throughput_tokens_per_s": (300.0, 301.0, 302.0),
    "p95_ms": (2000.0, 2050.0, 2100.0),
    "p99_ms": (2500.0, 2550.0, 2600.0),
    "queue_wait_ms": (300.0, 310.0, 320.0),
    "kv_handoff_bytes": (None, None, None),
    "kv_handoff_ms": (None, None, None),
    "peak_memory_mb": (100.0, 100.0, 100.0),
    "success_rate": (1.0, 1.0, 1.0),
}


def times(factor: float, **others: Sequence[float | None]) -> dict[str, Any]:
    """The slow group with all latencies so many times as long, and the rate accordingly."""
    made = {
        name: tuple(v * factor for v in each) if name.endswith("_ms") and each[0] else each
        for name, each in SLOW.items()
    }
    made["throughput_tokens_per_s"] = tuple(v / factor for v in SLOW["throughput_tokens_per_s"])
    return {**made, **others}


FAST = times(0.5)
MOVED = times(0.5, kv_handoff_bytes=(1e6,) * 3, kv_handoff_ms=(10.0, 10.0, 10.0))


def group(
    name: str, layout: Layout, columns: dict[str, Any], loads: Sequence[int] = (), **changes: Any
) -> ServingGroup:
    """A group; each column has a value a repeat, and their mean (or median) stands for the whole.

    ``loads``: tokens of each replica, in every repeat. ``changes`` replace fields of the envelope.
    """
    count = len(columns["e2e_ms"])
    overall = {name: _whole(name, columns[name]) for name in METRIC_NAMES}
    made = ServingGroup(
        schema=SCHEMA,
        project="pointsman",
        label="run-1",
        group=name,
        backend=BACKEND,
        workload=WORKLOAD,
        layout=layout,
        hardware=HARDWARE,
        metrics=Metrics(**overall),
        definitions=DEFINITIONS,
        details={name: _detail(name, overall[name], columns[name]) for name in METRIC_NAMES},
        statuses=Statuses(offered=100 * count, ok=100 * count),
        goodput=None,
        repeats=tuple(_repeat(k, columns, layout, loads) for k in range(count)),
        versions={"pointsman": "0.1.0"},
        evidence_level="real_engine_cpu",
        failure=None,
        decision=None,
    )
    return msgspec.structs.replace(made, **changes)


def with_repeats(made: ServingGroup, **changes: Any) -> ServingGroup:
    """The group with other fields in every repeat."""
    repeats = tuple(msgspec.structs.replace(each, **changes) for each in made.repeats)
    return msgspec.structs.replace(made, repeats=repeats)


def written(folder: Path, *groups: ServingGroup) -> Path:
    """The folder with a file for each group."""
    folder.mkdir(parents=True, exist_ok=True)
    for each in groups:
        write_envelope(folder, each)
    return folder


def three_groups() -> tuple[ServingGroup, ServingGroup, ServingGroup]:
    """The lesson's: one replica, two behind a router, prefill and decode apart."""
    return (
        group("g0_single_replica", ONE, SLOW),
        group("g1_multi_replica", TWO, FAST, (28_000, 29_600)),
        group("g2_pd_disaggregated", SPLIT, MOVED, (51_200, 6_400)),
    )


def _whole(name: str, values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if len(known) < len(values) or not known:
        return None
    if name in ("p95_ms", "p99_ms"):
        return sorted(known)[len(known) // 2]
    return sum(known) / len(known)


def _detail(name: Any, overall: float | None, values: Sequence[float | None]) -> Detail:
    return Detail(
        unit=METRICS[name].unit,
        definition=METRICS[name].text,
        source=None if overall is None else "a test",
        reason="prefill and decode are not apart" if overall is None else None,
        repeats=tuple(values),
    )


def _repeat(k: int, columns: dict[str, Any], layout: Layout, loads: Sequence[int]) -> Repeat:
    pools = ["all"] * len(loads)
    if layout.mode == "pd_disaggregated":
        pools = ["prefill", "decode"]
    return Repeat(
        number=k + 1,
        position=k + 1,
        seed=k,
        cache="reset",
        makespan_ms=25_000.0 + k,
        metrics=Metrics(**{name: columns[name][k] for name in METRIC_NAMES}),
        statuses=Statuses(offered=100, ok=100),
        loads=tuple(
            ReplicaLoad(replica=f"r{i}", pool=pool, requests=50, tokens=tokens)
            for i, (pool, tokens) in enumerate(zip(pools, loads, strict=True))
        ),
    )
