"""Every figure of requests that a client sent to real engines, from the columns of what it saw.

    intended ── client delay ── sent ──────────── first token ──── ... ──── last token
    |------------------ TTFT, the headline -----------|
                                |-- TTFT from send ---|--- (n - 1) x TPOT ------|

Both origins are given, for either alone hides something: latency from the send hides a client, or a
cap, that was late (coordinated omission); latency from the intended arrival holds what was no
server's fault (vllm-project/vllm#54101, vllm-project/guidellm#1048).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pointsman.core.errors import wrong_value
from pointsman.core.percentiles import PERCENTILE_METHOD
from pointsman.metrics.goodput import Goodput, Objectives, goodput
from pointsman.metrics.intertoken import GapHistogram
from pointsman.metrics.latency import Answers, Spread, spread_of
from pointsman.metrics.rates import per_second, window_ms
from pointsman.metrics.serving import cached_token_fraction
from pointsman.workload.workload import Floats

UNKNOWN = -1

# What each figure is, for whoever reads it elsewhere.
DEFINITIONS = {
    "percentile_method": PERCENTILE_METHOD,
    "ttft_ms": "first generated token of any channel - intended arrival; request-weighted",
    "ttft_from_send_ms": "the same, counted from when the request was handed to the socket",
    "ttfo_ms": "first generated token that is no reasoning - intended arrival; request-weighted",
    "tpot_ms": "(E2E - TTFT) / (n - 1); absent, not 0, for n = 1; request-weighted",
    "tpot_after_first_chunk_ms": "(E2E - TTFT) / (n - k), k tokens in the first chunk",
    "e2e_ms": "last chunk with choices - intended arrival; request-weighted",
    "e2e_from_send_ms": "the same, counted from when the request was handed to the socket",
    "inter_chunk_ms": "gaps between chunks that bring tokens; chunk-weighted",
    "itl_ms": "the same gaps over the tokens that came after each; token-weighted",
    "output_tokens_per_s": "output tokens of requests that ended well / window_ms",
    "window_ms": "first intended arrival to last end, of measured requests",
    "goodput": "requests that met every objective / all that were offered",
}


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """Columns, a row a request; ``answers`` counts from the intended arrival.

    NaN and UNKNOWN: it did not happen, or nobody says. Raises InputError where columns differ in
    length.
    """

    answers: Answers
    sent_ms: Floats
    first_text_ms: Floats
    first_chunk_tokens: NDArray[np.int64]

    def __post_init__(self) -> None:
        for name in ("sent_ms", "first_text_ms", "first_chunk_tokens"):
            shape = getattr(self, name).shape
            if shape != self.answers.arrival_ms.shape:
                raise wrong_value("seen", f"the shape of {name}", shape, "that of the answers")

    @property
    def ttft_from_send_ms(self) -> Floats:
        """From the send to the first token; NaN, as below, if it did not end well."""
        return self.answers.of_finished(self.answers.first_token_ms - self.sent_ms)

    @property
    def e2e_from_send_ms(self) -> Floats:
        """From the send to the last token."""
        return self.answers.of_finished(self.answers.finish_ms - self.sent_ms)

    @property
    def ttfo_ms(self) -> Floats:
        """From the intended arrival to the first token that is no reasoning."""
        return self.answers.of_finished(self.first_text_ms - self.answers.arrival_ms)

    @property
    def client_delay_ms(self) -> Floats:
        """From the intended arrival to the send."""
        return self.answers.of_finished(self.sent_ms - self.answers.arrival_ms)

    @property
    def tpot_after_first_chunk_ms(self) -> Floats:
        """Per output token after those of the first chunk (ai-dynamo/aiperf PR 1279)."""
        first = self.first_chunk_tokens
        further = self.answers.output_tokens - first
        count = np.where((first > 0) & (further > 0), further, np.nan)
        return (self.answers.e2e_ms - self.answers.ttft_ms) / count


@dataclass(frozen=True, slots=True)
class MeasuredMetrics:
    """Latencies and rates are of requests that ended well; ``DEFINITIONS`` says what each is."""

    offered: int
    finished: int
    window_ms: float
    ttft_ms: Spread
    ttft_from_send_ms: Spread
    ttfo_ms: Spread
    tpot_ms: Spread
    tpot_absent: int  # finished requests without one: of one token, or not streamed
    tpot_after_first_chunk_ms: Spread
    e2e_ms: Spread
    e2e_from_send_ms: Spread
    client_delay_ms: Spread
    inter_chunk_ms: Spread
    itl_ms: Spread | None  # None where chunks do not say how many tokens they bring
    requests_per_s: float
    output_tokens_per_s: float
    cached_token_fraction: float | None
    goodput: Goodput | None


def measured_metrics(
    seen: Seen, chunks: GapHistogram, tokens: GapHistogram | None, objectives: Objectives | None
) -> MeasuredMetrics:
    """The figures; ``chunks`` are gaps between chunks, ``tokens`` the same a token."""
    answers = seen.answers
    finished = answers.finished
    count = int(np.count_nonzero(finished))
    window = window_ms(answers.arrival_ms, answers.finish_ms) if len(answers) else 0.0
    known = finished & (answers.output_tokens > 0)
    tpot_ms = spread_of(answers.tpot_ms)
    return MeasuredMetrics(
        offered=len(answers),
        finished=count,
        window_ms=window,
        ttft_ms=spread_of(answers.ttft_ms),
        ttft_from_send_ms=spread_of(seen.ttft_from_send_ms),
        ttfo_ms=spread_of(seen.ttfo_ms),
        tpot_ms=tpot_ms,
        tpot_absent=count - tpot_ms.count,
        tpot_after_first_chunk_ms=spread_of(seen.tpot_after_first_chunk_ms),
        e2e_ms=spread_of(answers.e2e_ms),
        e2e_from_send_ms=spread_of(seen.e2e_from_send_ms),
        client_delay_ms=spread_of(seen.client_delay_ms),
        inter_chunk_ms=chunks.spread(),
        itl_ms=tokens.spread() if tokens is not None else None,
        requests_per_s=per_second(count, window),
        output_tokens_per_s=per_second(
            int(answers.output_tokens[known].sum(dtype=np.int64)), window
        ),
        cached_token_fraction=cached_token_fraction(answers),
        goodput=goodput(answers, objectives) if objectives is not None else None,
    )
