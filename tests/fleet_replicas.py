"""The replicas of the stepping fleet: those of ``batching_oracle``, which may be slow or dead here,
receive requests and hand them over; and what the router counts of each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.batching_oracle import Arrival, Engine, Replica, Request


@dataclass(frozen=True)
class Link:
    prefills: int
    base_ms: float
    bytes_per_ms: float
    bytes_per_token: float
    shares: bool = True
    moves_all: bool = False


@dataclass(frozen=True)
class Hold:
    wait_ms: float
    order: str
    most_held: int
    ageing: float
    ttft_ms: float


@dataclass(frozen=True)
class Setting:
    engines: tuple[Engine, ...]
    link: Link | None = None
    changes: tuple[tuple[float, int, str, float], ...] = ()
    most_tries: int = 2
    concurrency: int = 0
    think_ms: float = 0.0
    hold: Hold | None = None
    metrics_age_ms: float = 0.0
    reads_prefix: bool = False
    routers: int = 1


@dataclass(eq=False)
class Row(Request):
    """One stay of a request on a replica: its prefill, its decode, or both at once."""

    job: Job | None = None
    hands_over: bool = False
    is_remote: bool = False
    replica: int = -1
    sent_ms: float = 0.0
    work_ms: float = 0.0
    uncached: float = 0.0
    last_token_ms: float = 0.0
    received_ms: float | None = None
    begun_ms: float = 0.0
    moved: int = 0
    turn_ms: float = 0.0

    @property
    def turn(self) -> tuple[float, float, int]:
        return self.arrival.priority, self.turn_ms, self.job.number


@dataclass(eq=False)
class Job:
    """A request and all its stays; the last one or two count."""

    number: int
    arrival: Arrival
    router: int = 0
    came_ms: float = 0.0
    status: str = "unsent"
    tries: int = 0
    rows: list[Row] = field(default_factory=list)
    prefill: Row | None = None
    decode: Row | None = None

    @property
    def answers(self) -> Row | None:
        return self.decode or self.prefill


class FleetReplica(Replica):
    """A replica of the fleet, which tells its world what it finished, handed over and fetches."""

    def __init__(self, engine: Engine, number: int, world: Any) -> None:
        super().__init__(engine)
        self.number, self.world = number, world
        self.alive, self.slowness = True, 1.0
        self.receiving: list[Row] = []
        self.handed: list[Row] = []
        self.last_first_ms = [-math.inf] * world.setting.routers
        self.in_flight: list[Row] = []

    def holders(self) -> list[Request]:
        return [*self.running, *self.receiving, *self.handed]

    def has_seat(self) -> bool:
        seats = self.world.seats - len(self.holders())
        return len(self.running) + len(self.receiving) < self.engine.max_num_seqs and seats > 0

    def duration(self) -> float:
        return super().duration() * self.slowness

    def admit(self, row: Row) -> bool:
        if not row.is_remote or row.received_ms is not None:
            return super().admit(row)
        prefix = self.cache.prefix_of(row)
        leaving = sum(block.references == 0 for block in prefix)
        fresh = self.cache.blocks_for(row.arrival.prompt) - len(prefix)
        if fresh + leaving > len(self.cache.free):
            return False
        self.waiting.pop(0)
        row.result.scheduled_ms = self.now
        self.cache.hit(row, prefix)
        self.cache.take(row, row.arrival.prompt)
        self.receiving.append(row)
        self.world.begin_transfer(row, len(prefix) * self.engine.block_size)
        return True

    def receive(self, row: Row) -> None:
        self.receiving.remove(row)
        self.running.append(row)
        row.received_ms = self.now
        row.computed = row.arrival.prompt
        self.cache.enter(row, 0)
        row.computed -= 1

    def generate(self, row: Row) -> None:
        row.generated += 1
        if row.generated == 1:
            row.result.first_token_ms = self.last_first_ms[row.job.router] = self.now
        else:
            self.world.gaps_ms.append(self.now - row.last_token_ms)
        row.last_token_ms = self.now
        if row.generated == row.arrival.output:
            row.result.finish_ms = self.now
            self.running.remove(row)
            self.in_flight.remove(row)
            self.world.finish(row)

    def release(self, row: Row) -> None:
        """Take it out of whatever it is in."""
        for place in (self.running, self.receiving, self.handed, self.waiting, self.in_flight):
            if row in place:
                place.remove(row)
        self.batch = [(other, chunk) for other, chunk in self.batch if other is not row]
        self.cache.release(row)

    @property
    def gauges(self) -> tuple[int, int, float]:
        used = self.engine.capacity_blocks - len(self.cache.free)
        running = len(self.running) + len(self.receiving)
        return len(self.waiting), running, used / self.engine.capacity_blocks

    def own(self, router: int) -> list[Row]:
        """What the router has here."""
        return [row for row in self.in_flight if row.job.router == router]

    @property
    def reading(self) -> tuple[Any, ...]:
        """The gauges, and for each router what it takes for others': waiting and running ones."""
        waiting, running, kv_use = self.gauges
        others = []
        for router in range(self.world.setting.routers):
            own = self.own(router)
            pending = sum(row.generated == 0 for row in own)
            waits = max(0, waiting - pending - 1)
            others.append((waits, max(0, waiting + running - len(own) - waits - 1)))
        return waiting, running, kv_use, others if len(others) > 1 else [(0, 0)]

    def others(self, router: int) -> tuple[int, int]:
        """By the last reading."""
        is_old = self.world.setting.metrics_age_ms > 0.0
        return (self.world.read[self.number] if is_old else self.reading)[3][router]

    def requests(self, router: int) -> int:
        return len(self.own(router)) + sum(self.others(router))

    def wait_ms(self, now_ms: float, held: Sequence[Any] = (), job: Job | None = None) -> float:
        """For the prefill of those before it, or for a seat; also behind those held for here."""
        router = job.router if job else 0
        pending = [row for row in self.own(router) if row.generated == 0]
        prefill_ms = sum(row.work_ms for row in pending)
        if pending:
            since_ms = max(self.last_first_ms[router], pending[0].sent_ms)
            prefill_ms = max(0.0, prefill_ms - min(now_ms - since_ms, pending[0].work_ms))
        prefill_ms += sum(each.work_ms for each in held)
        if job:
            prefill_ms += self.others(router)[0] * self.work_ms(job.arrival.prompt, 0.0)
        lacking = self.requests(router) + len(held) + 1 - self.engine.max_num_seqs
        if self.world.link or lacking <= 0:
            return prefill_ms
        return max(prefill_ms, self.ending_ms(lacking, router))

    def ending_ms(self, count: float, router: int) -> float:
        """How long until so many have ended, at the pace at which they end."""
        answers = self.world.answers
        answer = sum(answers) / len(answers) if answers else 16.0
        decoding = sum(row.generated > 0 for row in self.own(router)) + self.others(router)[1]
        return count * answer * self.iteration_ms(router) / max(1, decoding)

    def work_ms(self, prompt: int, cached: float) -> float:
        _, per_token, _, _, per_attention = self.engine.costs
        rest = prompt - cached
        return per_token * rest + per_attention * rest * (prompt - 0.5 * rest)

    def iteration_ms(self, router: int) -> float:
        base, _, per_decode, per_kv, _ = self.engine.costs
        decoding = [row.total for row in self.own(router) if row.generated > 0]
        count = len(decoding) + self.others(router)[1]
        return base + per_decode * count + per_kv * sum(decoding)

    def context_tokens(self, router: int) -> int:
        return sum(row.total for row in self.own(router))
