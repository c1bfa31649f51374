"""Which shape comes first, and which ones nobody beats in both throughput and latency."""

from __future__ import annotations

from collections.abc import Sequence

from pointsman.plan.candidate import ShapeResult
from pointsman.plan.question import Question
from pointsman.plan.simulations import goodput_fraction


def ranked(results: Sequence[ShapeResult], question: Question) -> list[ShapeResult]:
    """Shapes that keep the objectives at the offered rate first, those on fewest GPUs before
    others, then those that hold the highest rate; among the rest the highest rate first."""
    return sorted(results, key=lambda result: _place(result, question))


def pareto_front(results: Sequence[ShapeResult]) -> list[ShapeResult]:
    """Each shape at its highest rate: those for which no other one has both more output tokens a
    second and GPU and a shorter P95 E2E. Shapes that hold no rate have no such point.
    """
    points = [(result, point) for result in results if (point := operating_point(result))]
    return [
        result for result, point in points if not any(_beats(other, point) for _, other in points)
    ]


def operating_point(result: ShapeResult) -> tuple[float, float] | None:
    """(output tokens a second and GPU, P95 E2E in ms) at the highest rate that is held."""
    if result.at_limit is None:
        return None
    serving = result.at_limit.serving
    p95_ms = serving.e2e_ms.p95
    return None if p95_ms is None else (serving.output_tokens_per_s_per_gpu, p95_ms)


def _beats(other: tuple[float, float], point: tuple[float, float]) -> bool:
    return other != point and other[0] >= point[0] and other[1] <= point[1]


def _place(result: ShapeResult, question: Question) -> tuple[int, float, float, float]:
    fraction = goodput_fraction(result.metrics)
    rate = result.limit.held or 0.0
    if fraction >= question.attainment:
        return (0, result.shape.gpus, -rate, -fraction)
    return (1, -rate, -fraction, result.shape.gpus)
