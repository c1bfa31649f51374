"""Downhill to a minimum, in so many steps."""

from __future__ import annotations

import numpy as np
import pytest

from pointsman.calibrate.simplex import minimise


def valley(point):
    """Rosenbrock's: least, 0, at (1, 1)."""
    x, y = point
    return (1 - x) ** 2 + 100 * (y - x * x) ** 2


def test_it_finds_the_bottom_of_a_curved_valley():
    found = minimise(valley, np.array([-1.2, 1.0]), 0.5, 400)
    assert found.point == pytest.approx([1.0, 1.0], abs=1e-3)


def test_its_evaluations_are_bounded():
    calls = []

    def loss(point):
        calls.append(point)
        return valley(point)

    minimise(loss, np.array([-1.2, 1.0]), 0.5, 10)
    assert len(calls) <= 3 + 10 * 4
