"""What is written is simulated as what was in memory."""

from __future__ import annotations

import pytest

from pointsman import POLICIES, FifoFleet, read_workload, simulate
from pointsman.policies.catalogue import EVERYWHERE
from pointsman.workload.arrivals import GammaArrivals
from pointsman.workload.distributions import distribution_of_text
from pointsman.workload.generate import Conversations, Traffic, generate
from pointsman.workload.writer import write_workload


@pytest.mark.parametrize("name", sorted(EVERYWHERE))
def test_an_exported_workload_simulates_to_the_same_bytes(tmp_path, name):
    def spec(text):
        return distribution_of_text(text, "test")

    traffic = Traffic(
        requests=800,
        arrivals=GammaArrivals(5.0, 0.5),
        prompt_tokens=spec("lognormal:mean=900,sigma=1"),
        output_tokens=spec("geometric:mean=80"),
        conversations=Conversations(spec("geometric:mean=3"), spec("exponential:mean=3000")),
    )
    workload = generate(traffic, seed=5)
    write_workload(workload, tmp_path / "exported.jsonl.gz")
    again = read_workload(tmp_path / "exported.jsonl.gz")
    first, second = (simulate(given, POLICIES[name], FifoFleet(4)) for given in (workload, again))
    for column in ("replica", "reason", "start_ms", "service_ms", "cached_tokens"):
        assert getattr(first, column).tobytes() == getattr(second, column).tobytes()
