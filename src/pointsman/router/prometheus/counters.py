"""What the router counts of its own doing, as cheaply as it can be counted.

Plain integers in lists, on the event loop, without locks: well under a microsecond each. Times are
milliseconds here and seconds on the page.
"""

from __future__ import annotations

from pointsman.dispatch.record import RETRIED, STATUSES
from pointsman.router.prometheus.text import Histogram

CHOICE_MS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 20.0)
WAIT_MS = (1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000)
# Those of vLLM's vllm:time_to_first_token_seconds as far as they go (source:
# vllm-project/vllm, vllm/v1/metrics/loggers.py), so that the two can be laid side by side.
TTFT_MS = (
    *(1, 5, 10, 20, 40, 60, 80, 100, 250, 500, 750),
    *(1000, 2500, 5000, 7500, 10_000, 20_000, 40_000, 80_000),
)


class RouterCounters:
    """A row a replica; everything starts at 0 with the router and only grows."""

    def __init__(self, replicas: int) -> None:
        self.choice_ms = Histogram(CHOICE_MS)
        self.held_ms = Histogram(WAIT_MS)
        self.shed: dict[str, int] = {}
        self.choices: dict[str, list[int]] = {}
        self.ended: dict[str, list[int]] = {status: [] for status in STATUSES}
        self.retries: list[int] = []
        self.ttft_ms: list[Histogram] = []
        self.expected_wait_ms: list[Histogram] = []
        self.realised_wait_ms: list[Histogram] = []
        self.wait_over_expected_ms: list[Histogram] = []
        self.expected_cached_tokens: list[int] = []
        self.predicted_cached_tokens: list[int] = []
        self.reported_cached_tokens: list[int] = []
        self.false_hit_tokens: list[int] = []
        self.unforeseen_hit_tokens: list[int] = []
        self.predicted_hits: list[int] = []
        self.false_hits: list[int] = []
        for _ in range(replicas):
            self.add_replica()

    @property
    def replicas(self) -> int:
        """How many rows there are."""
        return len(self.retries)

    def add_replica(self) -> None:
        """Make room for one more."""
        for row in (*self._token_rows(), *self.ended.values(), *self.choices.values()):
            row.append(0)
        self.retries.append(0)
        self.ttft_ms.append(Histogram(TTFT_MS))
        for waits in (self.expected_wait_ms, self.realised_wait_ms, self.wait_over_expected_ms):
            waits.append(Histogram(WAIT_MS))

    def observe_choice(self, replica: int, reason: str, took_ms: float) -> None:
        """A policy chose this replica for this reason; choosing took so long."""
        self.choice_ms.observe(took_ms)
        row = self.choices.get(reason)
        if row is None:
            row = self.choices[reason] = [0] * self.replicas
        row[replica] += 1

    def observe_end(self, replica: int, status: str) -> None:
        """A request ended; the status is one of the decision log's."""
        self.ended[status][replica] += 1
        if status == RETRIED:
            self.observe_retry(replica)

    def observe_retry(self, replica: int) -> None:
        """A request was sent once more, now to this replica."""
        self.retries[replica] += 1

    def observe_first_token(self, replica: int, ttft_ms: float) -> None:
        """The first token came, so long after the request."""
        self.ttft_ms[replica].observe(ttft_ms)

    def observe_wait(self, replica: int, expected_ms: float, realised_ms: float) -> None:
        """A request waited; what was expected when it was sent, and what it came to."""
        self.expected_wait_ms[replica].observe(expected_ms)
        self.realised_wait_ms[replica].observe(realised_ms)
        self.wait_over_expected_ms[replica].observe(max(0.0, realised_ms - expected_ms))

    def observe_cached(self, replica: int, predicted: int, reported: int | None) -> None:
        """Tokens that we took to be cached, and the engine's count, if it gave one."""
        self.expected_cached_tokens[replica] += predicted
        if reported is None:
            return
        self.predicted_cached_tokens[replica] += predicted
        self.reported_cached_tokens[replica] += reported
        if predicted > reported:
            self.false_hit_tokens[replica] += predicted - reported
        else:
            self.unforeseen_hit_tokens[replica] += reported - predicted
        if predicted:
            self.predicted_hits[replica] += 1
            if not reported:
                self.false_hits[replica] += 1

    def observe_release(self, held_ms: float) -> None:
        """A request that was held was sent on."""
        self.held_ms.observe(held_ms)

    def observe_shed(self, reason: str) -> None:
        """A request was turned away."""
        self.shed[reason] = self.shed.get(reason, 0) + 1

    def _token_rows(self) -> tuple[list[int], ...]:
        return (
            self.expected_cached_tokens,
            self.predicted_cached_tokens,
            self.reported_cached_tokens,
            self.false_hit_tokens,
            self.unforeseen_hit_tokens,
            self.predicted_hits,
            self.false_hits,
        )
