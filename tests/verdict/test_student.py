"""Student's t against published tables."""

from __future__ import annotations

import math

import pytest

from pointsman.verdict.student import central_t

# NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2: 0.975 and 0.995 of one side.
TABLE = {
    1: (12.706, 63.657),
    2: (4.303, 9.925),
    3: (3.182, 5.841),
    4: (2.776, 4.604),
    9: (2.262, 3.250),
    10: (2.228, 3.169),
    29: (2.045, 2.756),
    30: (2.042, 2.750),
    100: (1.984, 2.626),
}


@pytest.mark.parametrize("degrees", TABLE)
def test_quantiles_are_those_of_the_published_table(degrees):
    at_95, at_99 = TABLE[degrees]
    assert central_t(0.95, degrees) == pytest.approx(at_95, abs=0.0005)
    assert central_t(0.99, degrees) == pytest.approx(at_99, abs=0.0005)


@pytest.mark.parametrize("level", [0.1, 0.5, 0.9, 0.99, 0.999999])
def test_one_and_two_degrees_have_their_closed_forms(level):
    """1 is the Cauchy distribution, tan(pi level / 2); 2 has level sqrt(2 / (1 - level^2))."""
    assert central_t(level, 1) == pytest.approx(math.tan(math.pi * level / 2), rel=1e-9)
    assert central_t(level, 2) == pytest.approx(level * math.sqrt(2 / (1 - level**2)), rel=1e-9)


def test_many_degrees_are_near_the_normal_distribution():
    assert central_t(0.95, 100_000) == pytest.approx(1.959964, abs=5e-5)
