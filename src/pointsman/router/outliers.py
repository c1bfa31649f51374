"""Replicas that answer requests with errors although their probes are answered well.

    a request that fails --after ``answers`` different ones in a row, while another replica answers
                           the same model well--> set aside --its time is over--> warms up

A failure is an answer that no request is to blame for as a rule: 500, 502 or 504. An engine that is
full or loads says 503, and a request that is wrong gets a 4xx: neither counts, nor breaks the row.
The same request counts once in a row, so that one which no engine can take sets nobody aside,
however often it is tried.

After Envoy's outlier detection, with its defaults for the row (5), the time (30 s for each time in
succession, 300 s at most). Source: Envoy's documentation, ``config.cluster.v3.OutlierDetection``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from pointsman.router.settings import SettingAside

FAILURES = frozenset((500, 502, 504))
MOST_MODELS = 64  # that are remembered of a replica; clients may name as many as they like


class Answer(msgspec.Struct, frozen=True, gc=False):
    """What a replica answered to a request: ``turn`` counts the answers of all replicas."""

    status: int
    model: str | None
    request: int  # a hash of it
    turn: int


@dataclass(slots=True)
class Answers:
    """How one replica answered lately, and whether it is set aside for that."""

    setting_aside: SettingAside
    clock_s: Callable[[], float]
    times: int = 0  # in succession
    _row: set[int] = field(default_factory=set)  # the requests that failed since one went well
    _began: int = 0  # the turn of the first of them
    _well: dict[str | None, int] = field(default_factory=dict)  # the last good turn, by model
    _until_s: float | None = None
    _back_s: float = 0.0

    @property
    def are_set_aside(self) -> bool:
        """Whether its time is not over."""
        return self._until_s is not None

    def note(self, answer: Answer) -> bool:
        """Count an answer; whether it is a failure that makes the row long enough."""
        if 200 <= answer.status < 300:
            self._row.clear()
            self._well.pop(answer.model, None)
            self._well[answer.model] = answer.turn
            if len(self._well) > MOST_MODELS:
                del self._well[next(iter(self._well))]
        if answer.status not in FAILURES or self.are_set_aside:
            return False
        if not self._row:
            self._began = answer.turn
        most = self.setting_aside.answers
        if len(self._row) < most:
            self._row.add(answer.request)
        return 0 < most == len(self._row)

    def is_worse_than(self, others: Sequence[Answers], model: str | None) -> bool:
        """Whether one of the others has answered this model well since its row began, and fails
        none now."""
        return any(not other._row and other._well.get(model, -1) > self._began for other in others)

    def set_aside(self) -> float:
        """From now on; for how many milliseconds."""
        now_s = self.clock_s()
        if now_s - self._back_s >= self._time_ms() / 1000.0:
            self.times = 0  # it was well for as long as it was set aside the last time
        self.times += 1
        self._row.clear()
        time_ms = self._time_ms()
        self._until_s = now_s + time_ms / 1000.0
        return time_ms

    def may_come_back(self) -> bool:
        """Whether its time is over just now; it is not set aside any more then."""
        if self._until_s is None or self.clock_s() < self._until_s:
            return False
        self._back_s, self._until_s = self._until_s, None
        return True

    def _time_ms(self) -> float:
        return min(self.setting_aside.first_ms * self.times, self.setting_aside.most_ms)
