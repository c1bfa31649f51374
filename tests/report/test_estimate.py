"""An estimate as a table."""

from __future__ import annotations

from pointsman import POLICIES, FifoFleet, workload_of_columns
from pointsman.comparison.estimate import estimate
from pointsman.report.estimate import estimate_text
from pointsman.workload.reading import ReadOptions


def test_the_burst_and_the_service_are_told_apart():
    workload = workload_of_columns([0.0, 5000.0], prompt_tokens=[10, 10], output_tokens=[1, 1])
    text = estimate_text(
        estimate(workload, POLICIES["queue_aware"], FifoFleet(2)), ReadOptions(), "table"
    )
    _, _, summary, service, *_ = text.split("\n\n")
    assert summary.startswith("summary: the burst, all requests at once\n")
    assert service.startswith("service: the requests as they arrived\n")
    assert max(map(len, text.splitlines())) <= 100
