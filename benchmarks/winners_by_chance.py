"""How often a bootstrap of one trace names a winner where there is none, by load and length.

    python benchmarks/winners_by_chance.py [--seeds 300]

Two queues serve one stream of Poisson arrivals; their service times are exponential draws of one
mean, but not the same draws. The table of docs/metrics.md; some two minutes.
"""

from __future__ import annotations

import argparse

import numpy as np

from pointsman.verdict.bootstrap import Resampling, block_bootstrap, mean_of, percentile_of

RUNS = ((0.5, 2_000), (0.7, 4_000), (0.7, 12_000), (0.9, 12_000))
WARM_UP = 500
FIGURES = {"mean": mean_of, "p95": percentile_of(0.95)}


def waits(gaps: np.ndarray, service: np.ndarray) -> np.ndarray:
    """Waits first come first served: Lindley's recursion as a walk above its lowest point."""
    walk = np.concatenate([[0.0], np.cumsum(service[:-1] - gaps[1:])])
    return (walk - np.minimum.accumulate(walk))[WARM_UP:]


def winners(load: float, requests: int, seeds: int, block_requests: int | None) -> dict[str, float]:
    """The fraction of seeds whose interval at 95 % does not hold 0, for each figure."""
    resampling = Resampling(resamples=199, block_requests=block_requests)
    named = dict.fromkeys(FIGURES, 0)
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        gaps = rng.exponential(size=requests + WARM_UP)
        a, b = (waits(gaps, rng.exponential(load, size=gaps.size)) for _ in range(2))
        for name, figure in FIGURES.items():
            named[name] += block_bootstrap(a, b, figure, seed, resampling).sign != 0
    return {name: count / seeds for name, count in named.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=300)
    seeds = parser.parse_args().seeds
    print("load  requests  blocks: mean, p95  one by one: mean, p95")
    for load, requests in RUNS:
        blocks, single = (winners(load, requests, seeds, length) for length in (None, 1))
        fractions = [*blocks.values(), *single.values()]
        print(f"{load:4}  {requests:8,}  ", *(f"{fraction:7.1%}" for fraction in fractions))


if __name__ == "__main__":
    main()
