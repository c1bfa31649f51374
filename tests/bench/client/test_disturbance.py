"""A client that was the bottleneck says so, and its run is no result."""

from __future__ import annotations

import asyncio
import time

import numpy as np
import pytest

from pointsman.bench.client.disturbance import Effort, Tolerance, disturbance
from pointsman.bench.client.load import Load
from pointsman.bench.client.rows import Row
from tests.bench.client.loads import requests, sent
from tests.bench.client.stand_in import StandInEngine, run


def row(number: int, late_ms: float = 0.0, queue_ms: float = 0.0, ttft_ms: float = 100.0) -> Row:
    """Due every 10 ms."""
    intended_ms = 10.0 * number
    sent_ms = intended_ms + late_ms + queue_ms
    return Row(
        number=number,
        request_id=str(number),
        asked_prompt_tokens=1,
        asked_output_tokens=1,
        intended_ms=intended_ms,
        client_queue_ms=queue_ms,
        sent_ms=sent_ms,
        first_token_ms=sent_ms + ttft_ms,
        status="ok",
    )


def judged(rows, lag_ms=(0.1,), cpu_ms=100.0, tolerance=None, requested_rps=None):
    effort = Effort(np.array(lag_ms), wall_ms=1_000.0, cpu_ms=cpu_ms)
    return disturbance(rows, effort, requested_rps, tolerance)


def test_a_client_that_was_in_time_is_no_bottleneck():
    found = judged([row(k) for k in range(100)], requested_rps=100.0)
    assert found.is_valid
    assert found.achieved_rps == pytest.approx(100.0)
    assert found.cpu_fraction == 0.1


def test_a_stall_of_a_second_is_in_the_delay_and_invalidates_the_run():
    """From the 50th request on all come due at once, 1 s late, and catch up."""
    late = [max(0.0, 1_000.0 - 10.0 * k) for k in range(100)]
    found = judged([row(k, late[k]) for k in range(100)])
    assert found.schedule_delay_ms.worst == 1_000.0
    # Mean of 1000, 990, ..., 10, which is 505, against 10 % of a TTFT of 100.
    assert any("noticed late: mean 505 ms" in each for each in found.bottleneck)


def test_a_delay_counts_for_as_much_as_it_adds_to_what_is_measured():
    """12 ms is much of 100 ms and little of 200."""
    assert not judged([row(k, 12.0, ttft_ms=100.0) for k in range(9)]).is_valid
    assert judged([row(k, 12.0, ttft_ms=200.0) for k in range(9)]).is_valid


def test_waiting_for_the_cap_is_told_and_does_not_invalidate():
    found = judged([row(k, queue_ms=50.0 * k) for k in range(20)])
    assert found.is_valid
    assert found.client_queue_ms.worst == 950.0
    assert "waited in the client" in found.remarks[0]


def test_an_event_loop_that_lags_invalidates():
    assert "the event loop woke up late" in judged([row(0)], lag_ms=[40.0] * 9).bottleneck[0]


def test_a_rate_that_was_not_reached_invalidates():
    """100 requests due in 0.99 s are noticed over 1.98 s: half the rate."""
    rows = [row(k, 10.0 * k, ttft_ms=1e6) for k in range(100)]
    found = judged(rows, requested_rps=100.0)
    assert found.achieved_rps == pytest.approx(50.0)
    assert found.bottleneck == ("50 requests a second came due, 100 were asked",)


def test_a_client_that_fills_its_core_invalidates():
    assert judged([row(0)], cpu_ms=960.0).bottleneck == ("the client took 96% of a core",)


def test_connections_that_this_machine_refused_invalidate():
    effort = Effort(np.array([0.1]), 1_000.0, 1.0, client_errors=3)
    assert "refused 3 connections" in disturbance([row(0)], effort, None).bottleneck[0]


def test_a_warm_up_is_not_judged():
    late = Row(
        **{
            name: getattr(row(0, 500.0), name)
            for name in Row.__struct_fields__
            if name != "is_warmup"
        },
        is_warmup=True,
    )
    assert judged([late, row(1)]).is_valid


def test_a_load_whose_process_is_busy_is_invalid():
    """Something else holds the client's event loop for most of the time."""

    async def main():
        async def burns():
            while True:
                until = time.perf_counter() + 0.06
                while time.perf_counter() < until:
                    pass
                await asyncio.sleep(0.001)

        async with StandInEngine() as engine:
            burning = asyncio.create_task(burns())
            try:
                return await sent(
                    engine, Load(requests(30, gap_ms=10.0), tolerance=Tolerance(delay_fraction=0.0))
                )
            finally:
                burning.cancel()

    found = run(main()).disturbance
    assert not found.is_valid
    assert any("the event loop woke up late" in each for each in found.bottleneck)
    assert any("requests were noticed late" in each for each in found.bottleneck)
