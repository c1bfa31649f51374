"""Even samples of each replica: how far apart they are."""

from __future__ import annotations

import pytest

from pointsman import POLICIES
from pointsman.sim.batching import simulate_fleet
from pointsman.sim.timeline import even_samples
from tests.small_fleets import alike, asked


def step_ms(*rows: tuple) -> float:
    run = simulate_fleet(asked(*rows), POLICIES["round_robin"], alike(2))
    step, samples = even_samples(run.state)
    assert samples.shape[1] <= 512
    return step


@pytest.mark.parametrize(
    ("last_ms", "step"),
    [
        (400_000.0, 2000.0),  # 256 steps of 1 s are too few
        (256_000.0, 1000.0),
        (128_000.0, 500.0),
        (127_000.0, 500.0),
        (32.0, 0.9765625),  # 250 ms are enough for 1/1024 s; no finer
    ],
)
def test_arrivals_fill_half_of_the_samples(last_ms, step):
    """Each request takes 14 ms; a step more than 256 of which are needed is not halved."""
    assert step_ms((0, 4, 1), (last_ms, 4, 1)) == step


def test_steps_are_doubled_until_the_run_fits():
    """110 ms and 199 x 11: 2,299 ms are less than 512 x 7.8125 and more than 512 x 3.90625."""
    assert step_ms((0, 100, 200)) == 7.8125
