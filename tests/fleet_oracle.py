"""The batching fleet again, by other means: what the compiled event loop is held against.

What docs/simulator.md says beyond one replica: what the router knows, held requests, prefill and
decode apart, closed loops, replicas that die, slow down and join. It goes from event to event and
from iteration to iteration, in lists, without jumps, and shares no code with the simulator; the
replicas are those of ``batching_oracle``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tests.batching_oracle import Arrival, Cache, Result
from tests.fleet_replicas import FleetReplica, Job, Row, Setting

END, CHANGE, TRANSFER, SENT, ARRIVAL = range(5)
CLOSE_MS = 1e-6
EVENT_BUDGET = 200_000


class NearTieError(Exception):
    """Two events stand within rounding of each other: their order means nothing."""


@dataclass(eq=False)
class Held:
    job: Job
    replica: int
    work_ms: float
    since_ms: float
    uncached: int = 0


class World:
    """The router, the link and the clock; ``run`` goes from event to event."""

    def __init__(self, setting: Setting, arrivals: list, choose: Callable, dealt=None) -> None:
        self.setting, self.choose, self.link = setting, choose, setting.link
        self.replicas = [FleetReplica(e, r, self) for r, e in enumerate(setting.engines)]
        self.seats = max(e.max_num_seqs for e in setting.engines) * (2 if self.link else 1)
        self.columns = columns(len(setting.engines), self.link.prefills if self.link else 0)
        self.jobs = [Job(k, each, dealt[k] if dealt else 0) for k, each in enumerate(arrivals)]
        self.coming = list(self.jobs)
        self.changes = sorted(setting.changes, key=lambda change: change[0])
        for r, replica in enumerate(self.replicas):
            events = [event for _, who, event, _ in self.changes if who == r]
            replica.alive = not (events and events[0] == "joins")
        self.due = [0.0] * min(setting.concurrency, len(self.jobs))
        self.now, self.rows = 0.0, 0
        self.sequences = [0] * setting.routers
        self.transfers: list[list] = []
        self.sent: list[tuple[float, Row]] = []
        self.held: list[Held] = []
        self.looking_at: int | None = None
        self.most_held = self.most_in_flight = 0
        self.retries: list[Job] = []
        self.starting: list[FleetReplica] = []
        self.gaps_ms: list[float] = []
        self.answers: list[int] = []
        self.samples: list[list[tuple[int, int, float | None]]] = []
        span_ms = max((arrival.time_ms for arrival in arrivals), default=0.0)
        self.step_ms = 1000.0 * max(1, math.ceil(span_ms / 1000.0 / 256))
        age_ms = setting.metrics_age_ms
        count = len(self.replicas)
        self.next_reading = [age_ms * r / count for r in range(count)]
        self.read = [replica.reading for replica in self.replicas]

    # Events.

    def events(self) -> list[tuple[float, int, int]]:
        ends = [(each.ends_at, END, r) for r, each in enumerate(self.replicas) if each.ends_at]
        found = [*ends, *((change[0], CHANGE, k) for k, change in enumerate(self.changes))]
        share = len(self.transfers) if self.link and self.link.shares else 1
        for k, (_, left) in enumerate(self.transfers):
            found.append((self.now + left * share / self.link.bytes_per_ms, TRANSFER, k))
        found += [(due_ms, SENT, k) for k, (due_ms, _) in enumerate(self.sent)]
        if self.coming and self.setting.concurrency:
            found += [(due_ms, ARRIVAL, 0) for due_ms in self.due[:1]]
        elif self.coming:
            found.append((self.coming[0].arrival.time_ms, ARRIVAL, 0))
        return sorted(found)

    def run(self) -> World:
        for _ in range(EVENT_BUDGET):
            self.settle()
            events = self.events()
            if not events:
                return self
            self.refuse_near_ties(events)
            time_ms, kind, which = events[0]
            self.pass_time(time_ms)
            happen = (self.end, self.change, self.arrive_there, self.come, self.arrive)[kind]
            happen(which)
        raise RuntimeError("no end")

    def refuse_near_ties(self, events: list[tuple[float, int, int]]) -> None:
        first_ms, kind, which = events[0]
        for time_ms, other, k in events[1:]:
            if time_ms - first_ms > CLOSE_MS:
                return
            if kind == other == TRANSFER:
                one, two = self.transfers[which], self.transfers[k]
                if one[1] == two[1] and one[0].begun_ms == two[0].begun_ms:
                    continue
            if kind == other == SENT and time_ms == first_ms:
                continue
            if time_ms != first_ms or (first_ms * 4096.0) % 1.0 != 0.0:
                raise NearTieError

    def pass_time(self, time_ms: float) -> None:
        """Look at what there is before anything changes, and move the clocks."""
        assert time_ms >= self.now, "the clock went back"
        while len(self.samples) * self.step_ms <= time_ms:
            at_ms = len(self.samples) * self.step_ms
            self.samples.append([self.sample(replica, at_ms) for replica in self.replicas])
        age_ms = self.setting.metrics_age_ms
        for r, replica in enumerate(self.replicas):
            while age_ms and self.next_reading[r] <= time_ms:
                if replica.ends_at and abs(replica.ends_at - self.next_reading[r]) < CLOSE_MS:
                    raise NearTieError
                self.read[r] = replica.reading
                self.next_reading[r] += age_ms
        share = len(self.transfers) if self.link and self.link.shares else 1
        for transfer in self.transfers:
            transfer[1] -= (time_ms - self.now) * self.link.bytes_per_ms / share
        self.now = time_ms
        for replica in self.replicas:
            replica.now = time_ms

    def sample(self, replica: FleetReplica, at_ms: float) -> tuple[int, int, float | None]:
        waiting, running, used = replica.gauges
        is_at_end = replica.ends_at is not None and abs(replica.ends_at - at_ms) < CLOSE_MS
        return running, waiting, None if is_at_end else used

    def settle(self) -> None:
        """All that follows at once from what happened."""
        while self.starting or self.retries:
            self.start_those_due()
            if self.retries:
                self.route(self.retries.pop(0))

    def start_those_due(self) -> None:
        while self.starting:
            replica = self.starting.pop()
            if replica.ends_at is None:
                replica.start_iteration()

    def end(self, r: int) -> None:
        self.replicas[r].end_iteration()
        self.look(r)

    def arrive(self, _: int) -> None:
        if self.setting.concurrency:
            self.due.pop(0)
        job = self.coming.pop(0)
        job.came_ms = self.now
        job.status = "in flight"
        in_flight = sum(each.status == "in flight" for each in self.jobs)
        self.most_in_flight = max(self.most_in_flight, in_flight)
        self.route(job)

    # Routing.

    def fits(self, r: int, tokens: int) -> bool:
        engine, cache = self.replicas[r].engine, self.replicas[r].cache
        return cache.blocks_for(tokens) <= engine.capacity_blocks and tokens < engine.max_model_len

    def could_serve(self, job: Job, prefill: int, decode: int) -> bool:
        most = job.arrival.prompt + job.arrival.output - 1
        if decode < 0:
            return self.fits(prefill, most)
        return self.fits(prefill, job.arrival.prompt) and self.fits(decode, most)

    def lives(self, r: int) -> bool:
        return r < 0 or self.replicas[r].alive

    def route(self, job: Job, held: Held | None = None) -> None:
        able = [c for c in self.columns if self.could_serve(job, c[0], c[1])]
        listed = [c for c in able if self.lives(c[0]) and self.lives(c[1])]
        if not listed:
            if held:
                self.held.remove(held)
            self.close(job, "no replica" if able else "can never fit")
            return
        prefill, decode, _ = listed[self.choose(self, job, listed)]
        self.sequences[job.router] += 1
        if self.setting.hold and self.is_held_back(job, prefill, held):
            return
        if held:
            self.held.remove(held)
        self.dispatch(job, prefill, decode)

    def is_held_back(self, job: Job, r: int, held: Held | None) -> bool:
        hold = self.setting.hold
        wait_ms = self.replicas[r].wait_ms(self.now)
        if 0.0 < abs(wait_ms - hold.wait_ms) < CLOSE_MS:
            raise NearTieError
        too_long = wait_ms > hold.wait_ms
        has_room = held is not None or len(self.held) < hold.most_held
        overtakes = held is None and any(each.replica == r for each in self.held)
        if not has_room or not (too_long or overtakes):
            return False
        if held is None:
            held = Held(job, r, 0.0, self.now)
            self.held.append(held)
        held.replica, held.work_ms = r, self.expected_work_ms(job, r)
        cached = self.cached_tokens(job, r) if self.setting.reads_prefix else 0
        held.uncached = job.arrival.prompt - cached
        self.most_held = max(self.most_held, len(self.held))
        if not too_long:
            self.look(r)
        return True

    def look(self, r: int) -> None:
        """Try those held for the replica, as long as it has little to do."""
        self.looking_at = r
        self.try_held(r)
        self.looking_at = None

    def held_before(self, r: int) -> list[Held]:
        """Those held for the replica, but where they are tried themselves."""
        return [each for each in self.held if each.replica == r != self.looking_at]

    def try_held(self, r: int) -> None:
        tried: list[Held] = []
        while self.setting.hold:
            self.start_those_due()
            if self.replicas[r].wait_ms(self.now) > self.setting.hold.wait_ms:
                return
            waiting = [each for each in self.held if each.replica == r and each not in tried]
            if not waiting:
                return
            first = min(waiting, key=self.turn_of)
            tried.append(first)
            self.route(first.job, first)

    def turn_of(self, held: Held) -> float:
        hold = self.setting.hold
        if hold.order == "shortest_prefill":
            return held.work_ms + hold.ageing * held.since_ms
        is_late = self.now > held.since_ms + hold.ttft_ms
        late = hold.order == "earliest_deadline" and is_late
        return held.since_ms + (4.0 * hold.ttft_ms if late else 0.0)

    def cached_tokens(self, job: Job, r: int) -> int:
        """What the router knows: what is there, and what those in flight there bring."""
        replica, size = self.replicas[r], self.replicas[r].engine.block_size
        known = set(replica.cache.cached)
        for row in replica.own(job.router):
            known.update(row.arrival.chain[: row.arrival.prompt // size])
        count = 0
        for block in job.arrival.chain[: (job.arrival.prompt - 1) // size]:
            if block not in known:
                break
            count += 1
        return count * size

    def expected_work_ms(self, job: Job, r: int) -> float:
        cached = self.cached_tokens(job, r) if self.setting.reads_prefix else 0
        return self.replicas[r].work_ms(job.arrival.prompt, cached)

    def dispatch(self, job: Job, prefill: int, decode: int) -> None:
        job.tries += 1
        asked = job.arrival
        cached = self.cached_tokens(job, prefill) if self.setting.reads_prefix else 0
        job.decode = None
        if decode >= 0:
            job.decode = self.new_row(job, asked, decode)
            job.decode.is_remote = True
            asked = Arrival(asked.time_ms, asked.prompt, 1, asked.chain, asked.priority)
        work_ms = self.expected_work_ms(job, prefill)
        job.prefill = self.new_row(job, asked, prefill)
        job.prefill.hands_over = decode >= 0
        job.prefill.work_ms, job.prefill.uncached = work_ms, asked.prompt - cached
        self.join(job.prefill, job.came_ms)

    def new_row(self, job: Job, asked: Arrival, r: int) -> Row:
        self.rows += 1
        row = Row(asked, Result("waiting"), self.rows, job=job, replica=r, sent_ms=self.now)
        job.rows.append(row)
        self.replicas[r].in_flight.append(row)
        return row

    def join(self, row: Row, turn_ms: float) -> None:
        replica = self.replicas[row.replica]
        row.came_ms, row.turn_ms = self.now, turn_ms
        replica.wait(row)
        self.starting.append(replica)

    # What comes back.

    def finish(self, row: Row) -> None:
        replica, job = self.replicas[row.replica], row.job
        if row.hands_over:
            replica.handed.append(row)
            self.sent.append((self.now + self.link.base_ms, job.decode))
            return
        replica.cache.release(row)
        self.answers.append(row.generated)
        self.close(job, "finished")

    def close(self, job: Job, status: str) -> None:
        assert job.status == "in flight"
        job.status = status
        if self.setting.concurrency:
            self.due.append(self.now + self.setting.think_ms)

    # The hand-off.

    def come(self, _: int) -> None:
        _, row = self.sent.pop(0)
        if row.job.decode is not row:
            return  # given up on the way
        if not self.replicas[row.replica].alive:
            self.give_up(row.job)
            return
        self.join(row, self.now)

    def begin_transfer(self, row: Row, cached: int) -> None:
        row.moved = row.arrival.prompt - (0 if self.link.moves_all else cached)
        row.begun_ms = self.now
        self.transfers.append([row, row.moved * self.link.bytes_per_token])

    def arrive_there(self, which: int) -> None:
        row, _ = self.transfers.pop(which)
        decode, prefill = self.replicas[row.replica], self.replicas[row.job.prefill.replica]
        decode.receive(row)
        prefill.handed.remove(row.job.prefill)
        prefill.cache.release(row.job.prefill)
        self.starting += [prefill, decode]

    # Replicas that change.

    def change(self, _: int) -> None:
        _, r, event, factor = self.changes.pop(0)
        replica = self.replicas[r]
        if event == "slows":
            replica.slowness = factor
        elif event == "joins":
            replica.alive = True
        elif replica.alive:
            self.die(replica)
        self.start_those_due()
        self.look(r)

    def die(self, replica: FleetReplica) -> None:
        replica.alive, replica.ends_at = False, None
        lost = [
            job
            for job in self.jobs
            if job.status == "in flight"
            and (self.needs_prefill(job, replica) or self.needs_decode(job, replica))
        ]
        for job in lost:
            self.give_up(job)
        assert not replica.holders()
        assert not replica.waiting
        replica.batch = []
        replica.cache = Cache(replica.engine.capacity_blocks, replica.engine.block_size)

    def needs_prefill(self, job: Job, replica: FleetReplica) -> bool:
        row = job.prefill
        is_there = row is not None and row.replica == replica.number
        return is_there and row in (*replica.running, *replica.waiting, *replica.handed)

    def needs_decode(self, job: Job, replica: FleetReplica) -> bool:
        row = job.decode
        is_there = row is not None and row.replica == replica.number
        return is_there and row in (*replica.running, *replica.waiting, *replica.receiving)

    def give_up(self, job: Job) -> None:
        mid_stream = job.answers.generated > 0
        for row in (job.prefill, job.decode):
            if row is not None:
                self.transfers = [each for each in self.transfers if each[0] is not row]
                self.replicas[row.replica].release(row)
                self.starting.append(self.replicas[row.replica])
        self.starting = [each for each in self.starting if each.alive]
        job.prefill = job.decode = None
        if mid_stream:
            self.close(job, "died mid-stream")
        elif job.tries >= self.setting.most_tries:
            self.close(job, "tries used")
        else:
            self.retries.append(job)


def columns(replicas: int, prefills: int) -> list[tuple[int, int, int]]:
    """The candidates: replicas, or pairs so that successive ones take turns in both pools."""
    if not prefills:
        return [(r, -1, r) for r in range(replicas)]
    decodes = replicas - prefills
    pairs = []
    for turn in range(decodes):
        for prefill in range(prefills):
            decode = prefills + (turn + prefill) % decodes
            pairs.append((prefill, decode, len(pairs)))
    return pairs
