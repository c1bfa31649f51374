"""One measured configuration as a file: the two kinds of evidence, one tagged union.

``Envelope = ServingGroup | MechanismRun``, told apart by ``kind``. The lessons' required fields
stand at the top under the lessons' names (distributed inference, step 5; serving replica routing,
step 5); what makes them mean something stands beside them. ``decision`` is null here for good: what
is decided from several files is written beside them (``decision_file.py``).
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

from pointsman.evidence.mechanism_run import MechanismMetrics, MechanismWorkload
from pointsman.evidence.metrics import (
    METRIC_NAMES,
    Amount,
    AtLeastOne,
    Count,
    Fraction,
    MetricName,
    Metrics,
)

SCHEMA: Literal["pointsman.evidence/1"] = "pointsman.evidence/1"

EvidenceLevel = Literal[
    "simulation", "real_engine_cpu", "real_engine_gpu", "mechanism_cpu", "mechanism_gpu"
]
ServingLevel = Literal["simulation", "real_engine_cpu", "real_engine_gpu"]
MechanismLevel = Literal["mechanism_cpu", "mechanism_gpu"]
Mode = Literal["replica", "pd_disaggregated"]  # the lesson's words
CacheState = Literal["reset", "carried", "unknown"]
StageName = Literal[  # in the order of a request; ``e2e`` is all of them
    "client_delay", "router", "queue_wait", "prefill", "handoff", "decode_wait", "decode", "e2e"
]
STAGE_NAMES: tuple[StageName, ...] = get_args(StageName)


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which weights and which tokenizer; null where the engine does not say."""

    id: str
    revision: str | None
    tokenizer: str | None
    tokenizer_revision: str | None
    dtype: str | None


class Backend(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What answered: the engine as it was started."""

    engine: str
    version: str | None
    model: Model
    commands: tuple[str, ...] = ()  # one a replica, as started; none: it ran already
    router_command: str | None = None


class Layout(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The shape that is measured: the variable under test."""

    mode: Mode
    replicas: AtLeastOne  # of mode pd_disaggregated: prefill and decode replicas together
    tp: AtLeastOne
    pp: AtLeastOne
    policy: str | None  # null where there is nothing to choose
    prefills: AtLeastOne | None = None
    decodes: AtLeastOne | None = None
    handoff: str | None = None  # the protocol

    def __post_init__(self) -> None:
        if self.mode == "replica":
            if self.prefills is not None or self.decodes is not None or self.handoff is not None:
                raise ValueError("prefills, decodes and handoff are of mode pd_disaggregated only")
            return
        if self.prefills is None or self.decodes is None:
            raise ValueError("mode pd_disaggregated needs prefills and decodes")
        if self.prefills + self.decodes != self.replicas:
            raise ValueError("prefills and decodes do not add up to replicas")


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What was asked, the same for all groups that are compared."""

    id: str
    sha256: str  # of the token workload: arrivals, lengths, sessions, prefixes
    requests: AtLeastOne  # of one repeat
    load: Literal["open", "closed"]
    concurrency: AtLeastOne | None  # the cap; null: none
    prompt_tokens: Count  # of one repeat, together
    output_tokens: Count  # asked for
    max_tokens: AtLeastOne | None = None
    kv_bytes_per_token: Amount | None = None
    rate_rps: Amount | None = None
    think_time_ms: Amount | None = None
    warmup_requests: Count = 0
    seed: Count | None = None  # of the generator or the prompts


class Hardware(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The machine, whole: how much of it a group uses follows from its layout."""

    cpu: str
    cores: AtLeastOne
    memory_mb: Amount | None = None
    accelerator: str | None = None
    accelerators: Count = 0
    accelerator_memory_mb: Amount | None = None
    driver: str | None = None


class Bounds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a value may lie; ``n`` repeats."""

    low: float
    high: float
    level: Fraction
    n: AtLeastOne


class Detail(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One metric: what it is, where it comes from or why it is null, and its noise."""

    unit: str
    definition: str
    source: str | None  # null exactly where the value is
    reason: str | None  # why it is null
    count: Count | None = None  # requests that have a value, of all repeats
    repeats: tuple[float | None, ...] = ()
    interval: Bounds | None = None  # null with fewer than two repeats


class Definitions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all figures of the file share."""

    p95_of: Literal["e2e_ms"]
    p99_of: Literal["e2e_ms"]
    percentile_method: Literal["nearest_rank"]
    origin: Literal["intended arrival"]
    weighting: str
    over_repeats: str
    intervals: str


DEFINITIONS = Definitions(
    p95_of="e2e_ms",
    p99_of="e2e_ms",
    percentile_method="nearest_rank",
    origin="intended arrival",
    weighting="each finished request weighs alike",
    over_repeats="of all repeats' requests together; percentiles are never averaged",
    intervals="Student's t on how far each repeat lies from the whole (sectioning)",
)


class Statuses(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What became of all offered requests; the counts add up to ``offered``."""

    offered: Count
    ok: Count
    error: Count = 0
    timeout: Count = 0
    cancelled: Count = 0
    rejected: Count = 0
    truncated: Count = 0

    def __post_init__(self) -> None:
        ended = self.error + self.timeout + self.cancelled + self.rejected + self.truncated
        if self.ok + ended != self.offered:
            raise ValueError(f"the counts add up to {self.ok + ended}, offered is {self.offered}")


class Objectives(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a request was to keep, and how many were to keep it; null asks for nothing."""

    ttft_ms: Amount | None = None
    tpot_ms: Amount | None = None
    e2el_ms: Amount | None = None
    attainment: Fraction | None = None


class Goodput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Requests that met every objective, out of **all** offered."""

    objectives: Objectives
    offered: Count
    met: Count
    fraction: Fraction | None

    def __post_init__(self) -> None:
        if self.fraction != (self.met / self.offered if self.offered else None):
            raise ValueError("fraction is not met over offered")


class ReplicaLoad(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one replica got."""

    replica: str
    pool: Literal["all", "prefill", "decode"]
    requests: Count
    tokens: Count  # prompt and output


class Disturbance(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far the client was from what it was asked to do; null where nobody looked."""

    schedule_delay_p99_ms: Amount | None = None
    loop_lag_p99_ms: Amount | None = None
    client_queue_p99_ms: Amount | None = None
    requested_rps: Amount | None = None
    achieved_rps: Amount | None = None
    coalesced: Count | None = None  # answers that came in one read


class SideFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A file beside this one."""

    file: str  # relative to it
    sha256: str
    rows: Count


class Repeat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run of the workload through the group."""

    number: AtLeastOne
    position: AtLeastOne  # among all runs of the experiment, in the order in which they ran
    seed: Count | None
    cache: CacheState  # of the engines when it began
    makespan_ms: Amount
    metrics: Metrics
    statuses: Statuses
    loads: tuple[ReplicaLoad, ...] = ()
    disturbance: Disturbance | None = None
    invalid: str | None = None  # why it is no result, the client as the bottleneck among it
    warnings: tuple[str, ...] = ()  # what its reader must know
    rows: SideFile | None = None


class StageMean(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the time of finished requests went: the mean of one stage, of so many of them."""

    name: StageName
    mean_ms: Amount
    count: Count


class Failure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a group ended, why, and how to try again."""

    stage: str  # preflight, start, ready, warm-up, load, collect, client, interrupted
    reason: str
    retry: str


class ServingGroup(
    msgspec.Struct,
    tag_field="kind",
    tag="serving_group",
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
):
    """One group: engines, a workload, figures."""

    schema: Literal["pointsman.evidence/1"]
    project: str
    label: str
    group: str
    backend: Backend
    workload: Workload
    layout: Layout
    hardware: Hardware
    metrics: Metrics
    definitions: Definitions
    details: dict[MetricName, Detail]
    statuses: Statuses | None  # of all repeats; null where it failed before
    goodput: Goodput | None
    repeats: tuple[Repeat, ...]
    stages: tuple[StageMean, ...] = ()  # of all repeats; those that are known
    versions: dict[str, str]
    evidence_level: ServingLevel
    failure: Failure | None
    decision: None

    def __post_init__(self) -> None:
        for name in METRIC_NAMES:
            detail = self.details.get(name)
            if detail is None:
                raise ValueError(f"details.{name} is missing")
            known = self.metrics.of(name) is not None
            if known != (detail.source is not None) or known == (detail.reason is not None):
                raise ValueError(
                    f"details.{name}: a value has a source and no reason, null a reason and no"
                    " source"
                )
        if self.failure is None and not self.repeats:
            raise ValueError("no repeat, and no failure that says why")


class MechanismRun(
    msgspec.Struct,
    tag_field="kind",
    tag="mechanism_run",
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
):
    """The mechanism by itself: fixed costs on ranks, round robin against least loaded."""

    schema: Literal["pointsman.evidence/1"]
    project: str
    label: str
    environment_profile: Literal["PAR-CUDA-MECHANISM", "PAR-CPU-MECHANISM"]
    workload: MechanismWorkload
    hardware: Hardware
    metrics: MechanismMetrics
    versions: dict[str, str]
    evidence_level: MechanismLevel
    failure: Failure | None
    decision: None


Envelope: TypeAlias = ServingGroup | MechanismRun
