"""Measured rounds of two ranks, by hand."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from pointsman.bench.mechanism.asked import MechanismAsked
from pointsman.bench.mechanism.outcome import RunFacts
from pointsman.bench.mechanism.ranks import Round
from pointsman.bench.mechanism.result import ON_CPU

STAND_IN_FOR_TORCH = SimpleNamespace(__version__="9.9")

# Two repeats in the order A B B A. In the second one of least_loaded the other rank is the slowest.
FIRST = [
    Round("round_robin", 6.0, 6),
    Round("least_loaded", 17.0, 17),
    Round("least_loaded", 16.0, 17),
    Round("round_robin", 8.0, 6),
]
SECOND = [
    Round("round_robin", 26.0, 26),
    Round("least_loaded", 15.0, 15),
    Round("least_loaded", 20.0, 15),
    Round("round_robin", 30.0, 26),
]


def facts():
    asked = MechanismAsked(output=Path("result.json"), repeats=2)
    return RunFacts(STAND_IN_FOR_TORCH, asked, ranks=2, profile=ON_CPU)


def result():
    return facts().succeeded((FIRST, SECOND))
