"""What requests waited for: one definition a quantity, for the simulator and for real engines.

    arrival ──── scheduled ──── first token ──── ... ──── finish
    |-queue wait-|                    |
    |------------- TTFT --------------|--- (n - 1) x TPOT ---|
    |------------------------- E2E --------------------------|

TTFT and E2E count from the **arrival**, which for a recorded run is when the request was due, not
when a busy client sent it (vllm-project/vllm#54101 shows what the other origin hides). TPOT is
(E2E - TTFT) / (n - 1), as in ``vllm bench serve``, but absent, never 0, for one token
(CentML/flexible-inference-bench PR 68).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointsman.core.errors import wrong_value
from pointsman.core.percentiles import left_to_right_sum, nearest_rank
from pointsman.workload.workload import Floats

FINISHED, FAILED, REJECTED = range(3)
STATUS_NAMES = ("finished", "failed", "rejected")  # by number

NO_REPLICA = -1
UNKNOWN_TOKENS = -1


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """What became of each offered request, a row a request; times in ms of one clock.

    ``finish_ms`` of a failed request is when it failed. The columns of the hand-off from prefill to
    decode are None where there is no split, and their durations NaN for a request without one;
    ``recomputed_tokens`` is None where nobody counted. Raises InputError where columns differ in
    length, or a status is none of the three.
    """

    replica: NDArray[Any]  # NO_REPLICA: never sent to one
    status: NDArray[np.int8]  # FINISHED, FAILED or REJECTED
    arrival_ms: Floats
    scheduled_ms: Floats  # first taken up by an engine; NaN, like those below: did not happen
    first_token_ms: Floats
    finish_ms: Floats
    prompt_tokens: NDArray[Any]
    output_tokens: NDArray[Any]  # generated
    cached_tokens: NDArray[Any]  # of the prompt; UNKNOWN_TOKENS: the engine does not say
    preemptions: NDArray[Any]
    recomputed_tokens: NDArray[Any] | None = None  # of the prompt: cached there once, and evicted
    handoff_ms: Floats | None = None  # moving the KV cache to the decode replica
    handoff_bytes: NDArray[Any] | None = None
    prefilled_ms: Floats | None = None  # when the prefill replica had computed the prompt
    seat_wait_ms: Floats | None = None  # until the decode replica had a seat and blocks for it

    def __post_init__(self) -> None:
        rows = self.arrival_ms.shape
        for field in fields(self):
            column = getattr(self, field.name)
            if column is not None and column.shape != rows:
                raise wrong_value(
                    "answers", f"the shape of {field.name}", column.shape, f"{rows}, as arrival_ms"
                )

        unknown = self.status[(self.status < 0) | (self.status >= len(STATUS_NAMES))]
        if unknown.size:
            raise wrong_value(
                "answers", "status", int(unknown[0]), "0, 1 or 2: finished, failed, rejected"
            )

    def __len__(self) -> int:
        return int(self.arrival_ms.shape[0])

    @property
    def finished(self) -> NDArray[np.bool_]:
        """Which requests got their whole answer."""
        return np.asarray(self.status == FINISHED)

    @property
    def queue_wait_ms(self) -> Floats:
        """From arrival until an engine first took it up; NaN, as below, if it did not finish."""
        return self.of_finished(self.scheduled_ms - self.arrival_ms)

    @property
    def ttft_ms(self) -> Floats:
        """From arrival to the first token."""
        return self.of_finished(self.first_token_ms - self.arrival_ms)

    @property
    def e2e_ms(self) -> Floats:
        """From arrival to the last token."""
        return self.of_finished(self.finish_ms - self.arrival_ms)

    @property
    def tpot_ms(self) -> Floats:
        """Per output token after the first one; NaN also where there is only one."""
        further = np.where(self.output_tokens > 1, self.output_tokens - 1.0, np.nan)
        return (self.e2e_ms - self.ttft_ms) / further

    def of_finished(self, column: Floats) -> Floats:
        """The column with NaN for requests that did not finish: a failure that came soon is no
        short latency."""
        return np.where(self.finished, column, np.nan)


@dataclass(frozen=True, slots=True)
class Spread:
    """Figures of the values that are there; all None where there are none.

    The mean weighs each value alike; percentiles are by nearest rank. Never average those of
    several runs.
    """

    count: int = 0
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    worst: float | None = None


def spread_of(values: Floats) -> Spread:
    """The figures of a column; NaN is absent and not counted."""
    ordered = np.sort(values[~np.isnan(values)])
    if ordered.size == 0:
        return Spread()
    return Spread(
        count=int(ordered.size),
        mean=left_to_right_sum(ordered) / ordered.size,
        p50=nearest_rank(ordered, 0.50),
        p90=nearest_rank(ordered, 0.90),
        p95=nearest_rank(ordered, 0.95),
        p99=nearest_rank(ordered, 0.99),
        worst=float(ordered[-1]),
    )
