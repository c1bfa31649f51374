"""The times to first token of the last streams, and what the live page says of them."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import numpy as np

from pointsman.core.percentiles import nearest_rank
from pointsman.workload.workload import Floats

MOST_FIRST_TOKENS = 8192
WINDOW_MS = 60_000.0


class TtftFigures(msgspec.Struct, frozen=True):
    """Of the streams whose first token came in the last ``window_s``. ``seconds``: of each second
    that had one how long ago it was, the median and the longest."""

    count: int
    window_s: float
    p50_ms: float | None
    p99_ms: float | None
    seconds: list[tuple[int, float, float]]


class FirstTokens:
    """A ring of when each came, which never goes back, and how long after its choice."""

    def __init__(self) -> None:
        self._at_ms = np.full(MOST_FIRST_TOKENS, -np.inf)
        self._ttft_ms = np.zeros(MOST_FIRST_TOKENS)
        self._count = 0

    def add(self, at_ms: float, ttft_ms: float) -> None:
        """One came; where there is no room the oldest is forgotten."""
        place = self._count % MOST_FIRST_TOKENS
        self._at_ms[place] = at_ms
        self._ttft_ms[place] = ttft_ms
        self._count += 1

    def figures(self, since_ms: float, now_ms: float) -> TtftFigures:
        """Of those of the last minute, or since that instant. Percentiles are nearest rank."""
        begun_ms = max(since_ms, now_ms - WINDOW_MS)
        oldest = self._count % MOST_FIRST_TOKENS
        at_ms = np.roll(self._at_ms, -oldest)
        first = int(np.searchsorted(at_ms, begun_ms, side="right"))
        if first == 0:  # those before it are forgotten
            begun_ms = float(at_ms[0])
        ttft_ms = np.roll(self._ttft_ms, -oldest)[first:]
        ordered = np.sort(ttft_ms)
        return TtftFigures(
            count=len(ordered),
            window_s=(now_ms - begun_ms) / 1000.0,
            p50_ms=nearest_rank(ordered, 0.5) if len(ordered) else None,
            p99_ms=nearest_rank(ordered, 0.99) if len(ordered) else None,
            seconds=_seconds(now_ms - at_ms[first:], ttft_ms),
        )


def _seconds(ago_ms: Floats, ttft_ms: Floats) -> list[tuple[int, float, float]]:
    ago_s = (ago_ms // 1000.0).astype(np.int64)  # falls
    begins = np.flatnonzero(np.diff(ago_s, prepend=-1)).tolist()
    parts = (ttft_ms[begin:end] for begin, end in pairwise([*begins, len(ttft_ms)]))
    return [
        (int(ago_s[begin]), nearest_rank(np.sort(part), 0.5), float(part.max()))
        for begin, part in zip(begins, parts, strict=True)
    ]
