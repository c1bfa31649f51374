"""What a plan rests on that may not hold: another engine, caches that thrash."""

from __future__ import annotations

from collections.abc import Iterator

from pointsman.costs.calibrated import RunFigures, outside_range
from pointsman.metrics.serving import ServingMetrics
from pointsman.metrics.thrashing import thrashes, thrashing_warnings
from pointsman.plan.hardware import Hardware
from pointsman.plan.plan import Plan
from pointsman.sim.batching_state import ENGINE_MODEL


def plan_warnings(plan: Plan) -> tuple[str, ...]:
    """A sentence for each way in which the engine is another one, and one for all shapes whose
    caches thrash."""
    engines = (f"costs: {sentence}" for sentence in other_engine(plan.hardware))
    return (*engines, *thrashing_warnings(_runs(plan)))


def other_engine(hardware: Hardware) -> list[str]:
    """How the engine that is simulated and will serve differs from the one recorded."""
    if hardware.calibrated is None:
        return []
    serving = RunFigures(engine_model=ENGINE_MODEL, engine_version=hardware.engine_version)
    return outside_range(hardware.calibrated, serving)


def _runs(plan: Plan) -> Iterator[tuple[str, ServingMetrics]]:
    """Each shape at the offered rate, where its cache thrashes there, else at its highest rate."""
    for result in plan.results:
        label, offered = result.shape.label, result.metrics.serving
        if result.at_limit is None or thrashes(offered):
            yield label, offered
        else:
            yield f"{label} at its highest rate", result.at_limit.serving
