"""The downhill simplex of Nelder and Mead (1965), with a bounded number of steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pointsman.workload.workload import Floats

Loss = Callable[[Floats], float]


@dataclass(frozen=True, slots=True)
class Minimum:
    """The lowest point found."""

    point: Floats
    loss: float


def minimise(loss: Loss, start: Floats, step: float, most_steps: int) -> Minimum:
    """Walk downhill from ``start``; a function of its arguments.

    The first simplex has ``step`` along each axis. It ends after ``most_steps``, each of one to
    three evaluations but for the rare shrinking one, or when all corners are equally low.
    """
    corners = [start, *(start + step * axis for axis in np.eye(start.size))]
    simplex = [Minimum(corner, loss(corner)) for corner in corners]
    for _ in range(most_steps):
        simplex.sort(key=lambda corner: corner.loss)
        if simplex[-1].loss - simplex[0].loss <= _FLAT * abs(simplex[0].loss):
            break
        simplex = _moved(loss, simplex)
    return min(simplex, key=lambda corner: corner.loss)


_FLAT = 1e-7  # corners whose losses differ by less than this part are equally low


def _moved(loss: Loss, simplex: list[Minimum]) -> list[Minimum]:
    """One step: reflect the highest corner at the others' centre, expand, contract, or shrink."""
    best, second, worst = simplex[0], simplex[-2], simplex[-1]
    centre = np.mean([corner.point for corner in simplex[:-1]], axis=0)

    def at(scale: float) -> Minimum:
        point = centre + scale * (centre - worst.point)
        return Minimum(point, loss(point))

    reflected = at(1.0)
    if reflected.loss < best.loss:
        expanded = at(2.0)
        return [*simplex[:-1], expanded if expanded.loss < reflected.loss else reflected]
    if reflected.loss < second.loss:
        return [*simplex[:-1], reflected]
    contracted = at(0.5 if reflected.loss < worst.loss else -0.5)
    if contracted.loss < min(reflected.loss, worst.loss):
        return [*simplex[:-1], contracted]
    nearer = [best.point + 0.5 * (corner.point - best.point) for corner in simplex[1:]]
    return [best, *(Minimum(point, loss(point)) for point in nearer)]
