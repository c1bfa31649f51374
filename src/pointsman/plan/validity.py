"""Where calibrated costs end: lengths that no plan may have, rates that a shape may not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pointsman.core.errors import InputError
from pointsman.costs.calibrated import CostFile, RunFigures, figures_of, outside_range
from pointsman.plan.hardware import Hardware
from pointsman.plan.measure import ShapeMetrics
from pointsman.plan.shapes import Shape
from pointsman.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Refused:
    """A shape that is not ranked, and the range that it leaves."""

    shape: str
    reason: str


def check_lengths(hardware: Hardware, workloads: Sequence[Workload]) -> None:
    """Refuse a workload whose prompts or answers are longer than what was calibrated."""
    for workload in workloads if hardware.calibrated is not None else ():
        figures = replace(figures_of(workload), rate_rps=None)
        beyond = outside_range(_costs(hardware), figures)
        if beyond:
            raise InputError(
                f"plan: {workload.source.name} is outside the calibrated range:"
                f" {'; '.join(beyond)}; expected costs that were calibrated on such requests"
            )


def refused_rate(hardware: Hardware, shape: Shape, workload: Workload) -> Refused | None:
    """Why a shape is not ranked: each of its replicas gets more requests than were calibrated."""
    if hardware.calibrated is None:
        return None
    figures = RunFigures(rate_rps=figures_of(workload, shape.replicas).rate_rps)
    return _refused(hardware, shape, figures)


def refused_run(hardware: Hardware, shape: Shape, metrics: ShapeMetrics) -> Refused | None:
    """Why a shape is not ranked: what ran at once on a replica is more than was calibrated."""
    if hardware.calibrated is None:
        return None
    figures = RunFigures(batch=metrics.peak_batch, kv_tokens=metrics.peak_kv_tokens)
    return _refused(hardware, shape, figures)


def most_rate_of(hardware: Hardware, replicas: int, workload: Workload) -> float:
    """The highest multiple of the offered rate inside what was calibrated."""
    offered = figures_of(workload, replicas).rate_rps
    if hardware.calibrated is None or not offered:
        return math.inf
    return hardware.calibrated.valid_up_to.rate_rps / offered


def _refused(hardware: Hardware, shape: Shape, figures: RunFigures) -> Refused | None:
    beyond = outside_range(_costs(hardware), figures)
    return Refused(shape.label, "; ".join(beyond)) if beyond else None


def _costs(hardware: Hardware) -> CostFile:
    assert hardware.calibrated is not None
    return hardware.calibrated
