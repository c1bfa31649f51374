"""A mechanism run as a table."""

from __future__ import annotations

from pointsman.bench.mechanism.result import ON_GPUS
from pointsman.evidence.envelope import MechanismRun
from pointsman.evidence.mechanism_run import StrategyRow
from pointsman.report.table import text_table, wrapped

_HEADINGS = ("strategy", "units a rank", "ms a rank", "least", "mean", "most", "requests/s, proxy")
_GROUPS = (("", 3), ("slowest rank, ms", 3), ("", 1))


def mechanism_table(result: MechanismRun) -> str:
    """The rows, and under them what they are of."""
    rows = [_cells(row) for row in result.metrics.rows]
    workload = result.workload
    is_on_gpus = result.environment_profile == ON_GPUS
    where = f"{result.hardware.accelerator} (nccl)" if is_on_gpus else "the CPU (gloo)"
    dim = workload.compute_dim
    return text_table(_HEADINGS, rows, groups=_GROUPS) + wrapped(
        f"{workload.world_size} ranks on {where}, {workload.repeats} repeats; a unit is one product"
        f" of two {dim} x {dim} matrices of {workload.dtype}. It shows how work is"
        " spread, and nothing of serving: no model, no KV cache, no tail latency."
    )


def _cells(row: StrategyRow) -> tuple[str, ...]:
    makespans_ms = [repeat.max_rank_makespan_ms for repeat in row.repeats]
    return (
        row.strategy,
        " ".join(f"{units:g}" for units in row.request_cost_units_per_rank),
        " ".join(f"{ms:.2f}" for ms in row.rank_elapsed_ms),
        f"{min(makespans_ms):.2f}",
        f"{sum(makespans_ms) / len(makespans_ms):.2f}",
        f"{max(makespans_ms):.2f}",
        f"{row.throughput_requests_per_s_proxy:.1f}",
    )
