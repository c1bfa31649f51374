"""How far a load is, for whoever shows it while it runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from pointsman.bench.client.load import Sending

_RECENT = 100


@dataclass(frozen=True, slots=True)
class Progress:
    """Facts at one instant; ``ttft_ms``: the median of the last 100, from the intended arrival."""

    elapsed_ms: float
    planned: int
    sent: int
    ended: int
    in_flight: int
    queued: int
    errors: int  # ended in any way but well
    rate_rps: float  # at which they ended, since the start
    ttft_ms: float | None


class Stoppable(Protocol):
    """What can be ended early."""

    def stop(self) -> None:
        """End it; what was measured stays."""


class Watch:
    """Gets the facts every so often, and can end the load."""

    def __init__(
        self, on_progress: Callable[[Progress], None] | None = None, every_ms: float = 500.0
    ) -> None:
        self.every_ms = every_ms
        self._on_progress = on_progress
        self._running: Stoppable | None = None

    def follow(self, running: Stoppable | None) -> None:
        """What ``stop`` ends."""
        self._running = running

    def tell(self, progress: Progress) -> None:
        """Pass facts on."""
        if self._on_progress is not None:
            self._on_progress(progress)

    def stop(self) -> bool:
        """End the load now; whether one runs."""
        if self._running is None:
            return False
        self._running.stop()
        return True


def progress_of(sending: Sending, elapsed_ms: float) -> Progress:
    """The facts of this instant."""
    rows = sending.rows
    recent = [
        row.first_token_ms - row.intended_ms
        for row in rows[-_RECENT:]
        if row.first_token_ms is not None
    ]
    return Progress(
        elapsed_ms=elapsed_ms,
        planned=len(sending.load.workload),
        sent=sending.sent,
        ended=len(rows),
        in_flight=len(sending.in_flight),
        queued=sending.queued,
        errors=sending.failed,
        rate_rps=len(rows) * 1e3 / elapsed_ms if elapsed_ms > 0.0 else 0.0,
        ttft_ms=median(recent) if recent else None,
    )


def progress_line(progress: Progress) -> str:
    """The facts in a line."""
    words = [
        f"{progress.elapsed_ms / 1e3:.0f} s",
        f"{progress.sent} of {progress.planned} sent",
        f"{progress.ended} ended",
        f"{_figure(progress.rate_rps)}/s",
        f"{progress.errors} {'error' if progress.errors == 1 else 'errors'}",
    ]
    if progress.queued:
        words.append(f"{progress.queued} wait in the client")
    if progress.ttft_ms is not None:
        words.append(f"TTFT {_figure(progress.ttft_ms)} ms")
    return ", ".join(words)


def _figure(value: float) -> str:
    """Three digits that count, never with an exponent."""
    return f"{float(f'{value:.3g}'):,.15g}"
