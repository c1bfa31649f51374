"""A mechanism run as a table."""

from __future__ import annotations

from pointsman.bench.mechanism.result import ON_GPUS, MechanismResult, MechanismRow
from pointsman.report.table import text_table, wrapped

_HEADINGS = ("strategy", "units a rank", "ms a rank", "least", "mean", "most", "requests/s, proxy")
_GROUPS = (("", 3), ("slowest rank, ms", 3), ("", 1))


def mechanism_table(result: MechanismResult) -> str:
    """The rows, and under them what they are of."""
    rows = [_cells(row) for row in result.metrics.rows]
    workload = result.workload
    where = "GPUs" if result.environment_profile == ON_GPUS else "the CPU"
    return text_table(_HEADINGS, rows, groups=_GROUPS) + wrapped(
        f"{workload.world_size} ranks on {where} ({result.hardware.process_group}),"
        f" {workload.repeats} repeats, {workload.cost_unit}, {workload.dtype}. It shows how work is"
        " spread, and nothing of serving: no model, no KV cache, no tail latency."
    )


def _cells(row: MechanismRow) -> tuple[str, ...]:
    makespans_ms = [repeat.makespan_ms for repeat in row.repeats]
    return (
        row.strategy,
        " ".join(map(str, row.request_cost_units_per_rank)),
        " ".join(f"{ms:.2f}" for ms in row.rank_elapsed_ms),
        f"{min(makespans_ms):.2f}",
        f"{sum(makespans_ms) / len(makespans_ms):.2f}",
        f"{max(makespans_ms):.2f}",
        f"{row.throughput_requests_per_s_proxy:.1f}",
    )
