"""The line that says how far a load is."""

from __future__ import annotations

import pytest

from pointsman.bench.client.progress import Progress, progress_line


@pytest.mark.parametrize(
    ("ttft_ms", "shown"),
    [
        (3_217.4, "TTFT 3,220 ms"),
        (45_678.0, "TTFT 45,700 ms"),
        (2_345_678.0, "TTFT 2,350,000 ms"),
        (12.345, "TTFT 12.3 ms"),
        (0.5, "TTFT 0.5 ms"),
    ],
)
def test_times_have_three_digits_and_no_exponent(ttft_ms, shown):
    progress = Progress(
        elapsed_ms=5_000.0,
        planned=40,
        sent=30,
        ended=20,
        in_flight=10,
        queued=0,
        errors=0,
        rate_rps=1_234.5,
        ttft_ms=ttft_ms,
    )
    line = f"5 s, 30 of 40 sent, 20 ended, 1,230/s, 0 errors, {shown}"
    assert progress_line(progress) == line
