from __future__ import annotations

import numpy as np
import pytest

from pointsman.core.errors import InputError
from pointsman.workload.arrivals import (
    ConstantArrivals,
    GammaArrivals,
    PoissonArrivals,
    ReplayedArrivals,
    with_rate_scaled,
)
from pointsman.workload.streams import stream
from pointsman.workload.workload import workload_of_columns

COUNT = 20_000


def gaps_ms(arrivals, seed: int = 1) -> np.ndarray:
    return np.diff(arrivals.draw_ms(COUNT, stream(seed, "arrivals")), prepend=0.0)


def distance_to_exponential(gaps: np.ndarray, mean: float) -> float:
    """Kolmogorov's distance of the gaps from the exponential distribution of that mean."""
    theory = 1 - np.exp(-np.sort(gaps) / mean)
    ranks = np.arange(gaps.size + 1) / gaps.size
    return float(max((theory - ranks[:-1]).max(), (ranks[1:] - theory).max()))


def test_poisson_gaps_pass_a_goodness_of_fit_test():
    # Rejected at 0.1 % above 1.95 / sqrt(n).
    assert distance_to_exponential(gaps_ms(PoissonArrivals(4)), 250.0) < 1.95 / COUNT**0.5


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_burstiness_is_the_shape_of_the_gaps(burstiness):
    gaps = gaps_ms(GammaArrivals(4, burstiness))
    assert gaps.mean() == pytest.approx(250, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(burstiness**-0.5, rel=0.05)


def test_the_last_arrival_is_drawn_and_not_pinned_to_the_rate():
    lasts = [PoissonArrivals(4).draw_ms(100, stream(seed, "a"))[-1] for seed in range(200)]
    # A sum of 100 exponential gaps of 250 ms: mean 25,000 ms, standard deviation 2,500 ms.
    assert np.mean(lasts) == pytest.approx(25_000, rel=0.03)
    assert np.std(lasts) == pytest.approx(2_500, rel=0.2)


def test_constant_arrivals_do_not_drift():
    arrival_ms = ConstantArrivals(3).draw_ms(30_001, stream(0, "a"))
    assert arrival_ms[0] == 0.0
    assert arrival_ms[-1] == pytest.approx(10_000_000, rel=1e-12)


def test_replayed_arrivals_begin_at_0():
    assert ReplayedArrivals([5.0, 6.5, 9.0]).draw_ms(2, stream(0, "a")).tolist() == [0.0, 1.5]


def test_more_requests_than_the_replayed_trace_has_are_refused():
    with pytest.raises(InputError, match="requests is 4; expected at most 3"):
        ReplayedArrivals([5.0, 6.5, 9.0]).draw_ms(4, stream(0, "a"))


def test_twice_the_rate_halves_the_arrival_times():
    workload = workload_of_columns([0.0, 3.0], service_ms=[1, 1])
    assert with_rate_scaled(workload, 2).arrival_ms.tolist() == [0.0, 1.5]


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf"), 5e-324])
def test_a_rate_scale_that_makes_no_times_is_refused(factor):
    workload = workload_of_columns([0.0, 1e9], service_ms=[1, 1])
    with pytest.raises(InputError):
        with_rate_scaled(workload, factor)


@pytest.mark.parametrize(
    "make",
    [
        lambda: PoissonArrivals(0),
        lambda: ConstantArrivals(-1),
        lambda: GammaArrivals(1, 0),
        lambda: GammaArrivals(float("nan")),
    ],
)
def test_a_rate_or_burstiness_that_is_not_positive_is_refused(make):
    with pytest.raises(InputError, match="expected a number > 0"):
        make()
