"""What the router counts of hand-offs, and how the page of metrics shows it."""

from __future__ import annotations

from collections.abc import Sequence

from pointsman.router.handoff.protocol import CAUSES
from pointsman.router.prometheus.text import Histogram, Labels, counter, histogram

HANDOFF_MS = (0.5, 1, 2, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000)
_MS_PER_S = 1000.0


class PairCounters:
    """A row a pair; ``urls``: of its prefill and decode replica. Counts only grow."""

    def __init__(self, urls: Sequence[tuple[str, str]]) -> None:
        self.urls = list(urls)
        self.made = [0] * len(urls)
        self.took_ms = [Histogram(HANDOFF_MS) for _ in urls]
        self.moved_bytes: list[int | None] = [None] * len(urls)  # None: nobody has said
        self.failures = dict.fromkeys(CAUSES, 0)

    def observe_handoff(self, pair: int, took_ms: float | None, size_bytes: int | None) -> None:
        """One was made; None where it could not be seen."""
        self.made[pair] += 1
        if took_ms is not None:
            self.took_ms[pair].observe(took_ms)
        if size_bytes is not None:
            self.moved_bytes[pair] = (self.moved_bytes[pair] or 0) + size_bytes

    def observe_fall_back(self, cause: str) -> None:
        """One was not made."""
        self.failures[cause] += 1

    def page(self) -> str:
        """The families, in Prometheus' text format."""
        made = zip(self.urls, self.made, strict=True)
        moved = zip(self.urls, self.moved_bytes, strict=True)
        took = zip(self.urls, self.took_ms, strict=True)
        return "".join(
            (
                counter(
                    "pointsman_handoffs_total",
                    "Caches handed from the prefill to the decode replica.",
                    [(_of(pair), count) for pair, count in made],
                ),
                histogram(
                    "pointsman_handoff_seconds",
                    "Time that hand-offs took, of those where it could be seen.",
                    [(_of(pair), row) for pair, row in took],
                    _MS_PER_S,
                ),
                counter(
                    "pointsman_handoff_bytes_total",
                    "Bytes handed over, as far as the protocol says.",
                    [(_of(pair), count) for pair, count in moved],
                ),
                counter(
                    "pointsman_handoff_failures_total",
                    "Hand-offs that were not made, by cause.",
                    [({"cause": cause}, count) for cause, count in self.failures.items()],
                ),
            )
        )


def _of(pair: tuple[str, str]) -> Labels:
    return {"prefill": pair[0], "decode": pair[1]}
