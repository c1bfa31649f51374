"""A load while it is sent: what is due is noticed, queued, sent, and ends as a row.

    schedule ── due ──> noticed ──> queue (only where a cap or a connection holds it) ──> in flight
        ^                                                                                     │
        └─────────────────── in a closed loop the next one is due ─── row <── ended <─────────┘

Everything runs in callbacks of one event loop; one timer stands for the next request that is due,
one beats every 10 ms.
"""

from __future__ import annotations

import asyncio
import heapq
import math
from array import array
from collections import deque
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from pointsman.bench.client.arrivals import Loop, OpenLoop
from pointsman.bench.client.connection import Clock
from pointsman.bench.client.disturbance import BEAT_MS, Heartbeat, Tolerance
from pointsman.bench.client.exchange import Exchange
from pointsman.bench.client.prompts import Prompts
from pointsman.bench.client.requests import Generation, body_of, request_of, session_header
from pointsman.bench.client.rows import CANCELLED, OK, TIMEOUT, Row
from pointsman.bench.client.seen import row_of
from pointsman.bench.client.sender import Sender
from pointsman.bench.client.target import Target
from pointsman.core.errors import wrong_value
from pointsman.workload.workload import Floats, Longs, Workload

LIMIT_MS = 600_000.0
_LOOKED_AT = 64  # of the oldest requests in flight, at each beat


@dataclass(frozen=True, slots=True)
class Warmup:
    """What is sent and left out of every figure: the first requests, and those due early.

    Nothing is drained in between: what is measured meets a server under load
    (modelscope/evalscope PR 1641 shows the burst of a start in the figures).
    """

    requests: int = 0
    ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """``request_ms``: from the send to the end of an answer; ``load_ms``: when arrivals stop."""

    request_ms: float = LIMIT_MS
    load_ms: float = math.inf

    def __post_init__(self) -> None:
        for name in ("request_ms", "load_ms"):
            if not getattr(self, name) > 0.0:
                raise wrong_value("load limits", name, getattr(self, name), "a time in ms > 0")


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent and how; ``name`` begins the id of each request, ``seed`` is of the prompts."""

    workload: Workload
    how: Loop = field(default_factory=OpenLoop)
    warmup: Warmup = field(default_factory=Warmup)
    limits: Limits = field(default_factory=Limits)
    generation: Generation = field(default_factory=Generation)
    tolerance: Tolerance = field(default_factory=Tolerance)  # of the client itself
    name: str = "load"
    seed: int = 0

    def __post_init__(self) -> None:
        if len(self.workload) == 0:
            raise wrong_value("load", "requests", 0, "at least one")
        if not self.name.isascii() or not self.name.isprintable() or " " in self.name:
            raise wrong_value("load", "name", self.name, "printable ASCII without spaces")


@dataclass(frozen=True, slots=True)
class Gaps:
    """Before each token-bearing chunk but the first, of measured requests that ended well.

    ``tokens`` came after each of ``counted_ms``: the gaps of requests whose chunks say how many
    tokens they brought.
    """

    chunk_ms: Floats
    counted_ms: Floats
    tokens: Longs


class Sending:
    """One load on its way; ``clock`` is in ms, 0 at its start."""

    def __init__(self, load: Load, target: Target, prompts: Prompts, sender: Sender) -> None:
        self.load = load
        self.target = target
        self.rows: list[Row] = []
        self.untold: dict[int, str] = {}  # texts of answers without usage, by request
        self.heartbeat = Heartbeat()
        self.in_flight: dict[int, Exchange] = {}
        self.is_interrupted = False
        self.sent = 0
        self.failed = 0  # ended in any way but well
        self._prompts = prompts
        self._sender = sender
        self._schedule = load.how.schedule(load.workload)
        self._due = self._schedule.first()  # a heap: (intended_ms, number)
        self._most = load.how.most_in_flight
        self._queue: deque[tuple[float, int]] = deque()  # noticed and not sent
        self._intended: dict[int, tuple[float, float]] = {}  # and noticed, of what is not ended
        self._next: tuple[int, bytes] | None = None  # made ready before it is due
        self._clock: Clock
        self._loop: asyncio.AbstractEventLoop
        self._ended: asyncio.Future[None]
        self._timer: asyncio.TimerHandle | None = None
        self._next_beat: asyncio.TimerHandle | None = None
        self._gaps_ms, self._counted_ms, self._tokens = array("d"), array("d"), array("q")

    async def run(self, clock: Clock) -> None:
        """Send all of it, and wait until the last answer has ended."""
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        self._make_next_ready()
        self._expect_beat()
        try:
            self._notice()
            await self._ended
        finally:
            for handle in (self._next_beat, self._timer):
                if handle is not None:
                    handle.cancel()

    def stop(self) -> None:
        """End it now: what is in flight is aborted, what was measured stays."""
        self.is_interrupted = True
        self._end_all("the load was interrupted")

    @property
    def refused_here(self) -> int:
        """Connections that this machine could not make."""
        return self._sender.refused_here

    @property
    def queued(self) -> int:
        """Noticed and not sent."""
        return len(self._queue)

    def gaps(self) -> Gaps:
        """Of what has ended by now."""
        return Gaps(
            np.array(self._gaps_ms), np.array(self._counted_ms), np.array(self._tokens, np.int64)
        )

    # What is due.

    def _notice(self) -> None:
        """Queue what is due, send what may be sent, and come back when the next one is due."""
        now_ms, load_ms = self._clock(), self.load.limits.load_ms
        while self._due and self._due[0][0] <= now_ms and self._due[0][0] < load_ms:
            intended_ms, number = heapq.heappop(self._due)
            self._intended[number] = (intended_ms, now_ms)
            self._queue.append((intended_ms, number))
        if self._due and self._due[0][0] >= load_ms:
            self._due.clear()  # not offered any more
        self._send_queued()
        if now_ms >= load_ms:
            self._drop_queue(f"not sent within {load_ms:g} ms")
        self._set_timer()
        self._end_if_done()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due or self._queue:
            next_ms = self._due[0][0] if self._due else math.inf
            at_ms = min(next_ms, self.load.limits.load_ms)
        else:
            at_ms = math.inf
        if at_ms < math.inf:
            # The loop rounds to whole ms; rounded down it would be woken early, and often.
            wait_ms = math.ceil(max(0.0, at_ms - self._clock()))
            self._timer = self._loop.call_later(wait_ms / 1e3, self._notice)

    def _send_queued(self) -> None:
        while self._queue and len(self.in_flight) < self._most:
            _, number = self._queue.popleft()
            exchange = Exchange(number, self._request(number), self._on_end)
            exchange.begun_ms = self._clock()
            self.in_flight[number] = exchange
            self.sent += 1
            self._sender.send(exchange)
            self._make_next_ready()

    def _request(self, number: int) -> bytes:
        if self._next is not None and self._next[0] == number:
            return self._next[1]
        load, target = self.load, self.target
        prompt = self._prompts.text(number)
        max_tokens = max(1, int(load.workload.output_tokens[number]))
        body = body_of(target, prompt, max_tokens, load.generation)
        request_id = b"x-request-id: " + self.request_id(number).encode("ascii")
        headers = (request_id, *session_header(load.workload, number))
        return request_of(target, target.path, body, *headers)

    def request_id(self, number: int) -> str:
        """Unique in this load; ``name`` keeps loads apart."""
        return f"{self.load.name}-{number}"

    def _make_next_ready(self) -> None:
        """Make the next request's bytes while nothing is due, not when it is."""
        number = self._queue[0][1] if self._queue else self._due[0][1] if self._due else None
        if number is not None:
            self._next = number, self._request(number)

    # What has ended.

    def _on_end(self, exchange: Exchange) -> None:
        number = exchange.number
        del self.in_flight[number]
        self._add_row(number, exchange)
        due = None if self._ended.done() else self._schedule.after(number, exchange.end_ms or 0.0)
        if due is not None and not self.is_interrupted:
            heapq.heappush(self._due, due)
            self._loop.call_soon(self._notice)
        elif self._queue:
            self._loop.call_soon(self._notice)
        else:
            self._end_if_done()

    def _add_row(self, number: int, exchange: Exchange | None, error: str | None = None) -> None:
        intended_ms, noticed_ms = self._intended.pop(number)
        warmup, workload = self.load.warmup, self.load.workload
        row = row_of(
            exchange,
            number=number,
            request_id=self.request_id(number),
            session=None if workload.session[number] < 0 else int(workload.session[number]),
            is_warmup=number < warmup.requests or intended_ms < warmup.ms,
            asked_prompt_tokens=int(workload.prompt_tokens[number]),
            asked_output_tokens=max(1, int(workload.output_tokens[number])),
            intended_ms=intended_ms,
            noticed_ms=noticed_ms,
            error=error,
        )
        self.rows.append(row)
        self.failed += row.status != OK
        answer = exchange.answer if exchange is not None else None
        if answer is None or row.status != OK:
            return
        if row.tokens_from not in ("usage", "timings"):
            self.untold[number] = "".join(answer.texts)
        if not row.is_warmup:
            self._gaps_ms.extend(answer.gaps_ms)
            if answer.has_running_counts:
                self._counted_ms.extend(answer.gaps_ms)
                self._tokens.extend(answer.gap_tokens)

    def _end_all(self, why: str) -> None:
        self._due.clear()
        self._drop_queue(why)
        for exchange in list(self.in_flight.values()):
            exchange.give_up(CANCELLED, why, self._clock())
        self._end_if_done()

    def _drop_queue(self, why: str) -> None:
        while self._queue:
            self._add_row(self._queue.popleft()[1], None, why)

    def _end_if_done(self) -> None:
        if not (self._due or self._queue or self.in_flight or self._ended.done()):
            self._ended.set_result(None)

    # Every few ms.

    def _expect_beat(self) -> None:
        expected_ms = self._clock() + BEAT_MS
        self._next_beat = self._loop.call_later(BEAT_MS / 1e3, self._beat, expected_ms)

    def _beat(self, expected_ms: float) -> None:
        now_ms, limit_ms = self._clock(), self.load.limits.request_ms
        self.heartbeat.beat(now_ms - expected_ms)
        for exchange in list(islice(self.in_flight.values(), _LOOKED_AT)):
            if exchange.begun_ms > now_ms - limit_ms:
                break  # those behind it were begun later
            exchange.give_up(TIMEOUT, f"no whole answer within {limit_ms:g} ms", now_ms)
        self._expect_beat()
