"""The batching replica again, by other means: what the compiled engine is held against.

One replica of docs/simulator.md ("One replica", "The KV cache"), iteration by iteration and
block by block: lists, no jumps, no arrays. It shares no code with the simulator. Every step
follows the page's words in the page's order; the invariants of the page are asserted at the start
and at the end of every iteration, so that it is slow and meant to be.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

EVENT_BUDGET = 1_000_000
"""More ends and arrivals than any test needs: past it, the oracle goes round in circles."""


@dataclass(frozen=True)
class Engine:
    """A replica's limits and the parameters `a, b, c, d, e` of its cost model."""

    max_num_seqs: int
    max_num_batched_tokens: int
    capacity_blocks: int
    block_size: int
    reserve_full: bool
    costs: tuple[float, float, float, float, float]
    by_priority: bool = False
    async_scheduling: bool = False
    max_model_len: int = 1 << 20


@dataclass(frozen=True)
class Arrival:
    """A request as it arrives; `chain` names the full blocks of prompt and answer it knows of."""

    time_ms: float
    prompt: int
    output: int
    chain: tuple[int, ...]
    priority: int = 0


@dataclass
class Result:
    """What became of a request; the times stay `None` where it was rejected."""

    status: str
    scheduled_ms: float | None = None
    first_token_ms: float | None = None
    finish_ms: float | None = None
    cached_tokens: int = 0
    preemptions: int = 0


@dataclass(eq=False)
class Block:
    """One block: how many requests hold it, and the id under which the cache knows it."""

    number: int
    references: int = 0
    content: object = None


@dataclass(eq=False)
class Request:
    """A request in the replica: its tokens so far and the blocks that hold them."""

    arrival: Arrival
    result: Result
    number: int
    computed: int = 0
    generated: int = 0
    blocks: list[Block] = field(default_factory=list)
    came_ms: float = 0.0

    @property
    def turn(self) -> tuple[float, float, int]:
        """Its place in the order of priorities: the lowest first, then who came first."""
        return self.arrival.priority, self.came_ms, self.number

    @property
    def total(self) -> int:
        return self.arrival.prompt + self.generated

    def ids(self, blocks: int) -> list[object]:
        """What its first blocks are known by: the chain's ids, then ids of its own."""
        chain = list(self.arrival.chain[:blocks])
        return chain + [(self.number, place) for place in range(len(chain), blocks)]

    @property
    def decoding(self) -> bool:
        return self.computed == self.total - 1 and self.generated >= 1


class Cache:
    """The blocks, the queue of the free ones, and which id stands in which block."""

    def __init__(self, capacity: int, block_size: int) -> None:
        self.block_size = block_size
        self.blocks = [Block(number) for number in range(capacity)]
        self.free = list(self.blocks)
        self.cached: dict[object, Block] = {}

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def prefix_of(self, request: Request) -> list[Block]:
        """The blocks of its cached prefix; looking takes nothing."""
        found: list[Block] = []
        for content in request.ids((request.total - 1) // self.block_size):
            if content not in self.cached:
                break
            found.append(self.cached[content])
        return found

    def hit(self, request: Request, blocks: Sequence[Block]) -> None:
        """Give it cached blocks: those that were free leave the queue with their content."""
        for block in blocks:
            if block.references == 0:
                self.free.remove(block)
            block.references += 1
            request.blocks.append(block)

    def take(self, request: Request, tokens: int) -> None:
        """Fill its blocks up to `tokens` tokens from the front of the queue."""
        while len(request.blocks) < self.blocks_for(tokens):
            block = self.free.pop(0)
            if block.content is not None:
                del self.cached[block.content]
                block.content = None
            block.references = 1
            request.blocks.append(block)

    def release(self, request: Request) -> None:
        """Free its blocks to the end of the queue, the last one first."""
        for block in reversed(request.blocks):
            block.references -= 1
            if block.references == 0:
                self.free.append(block)
        request.blocks = []

    def enter(self, request: Request, computed_before: int) -> None:
        """Let the blocks that became full since then into the cache, as far as they have ids."""
        chain = request.arrival.chain
        full = request.computed // self.block_size
        for index in range(computed_before // self.block_size, min(full, len(chain))):
            if chain[index] not in self.cached:
                self.cached[chain[index]] = request.blocks[index]
                request.blocks[index].content = chain[index]

    def keep_own(self, request: Request) -> None:
        """On a preemption: full blocks beyond the chain get ids of the request's own, anew."""
        for block in self.blocks:
            if isinstance(block.content, tuple) and block.content[0] == request.number:
                del self.cached[block.content]
                block.content = None
        ids = request.ids(request.computed // self.block_size)
        for index in range(len(request.arrival.chain), len(ids)):
            self.cached[ids[index]] = request.blocks[index]
            request.blocks[index].content = ids[index]


class Replica:
    """One replica; `batch` holds the requests that the running iteration computes, with chunks."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.cache = Cache(engine.capacity_blocks, engine.block_size)
        self.now = 0.0
        self.arrived = 0
        self.running: list[Request] = []
        self.waiting: list[Request] = []
        self.batch: list[tuple[Request, int]] = []
        self.budget = 0
        self.began_ms = 0.0
        self.ends_at: float | None = None
        """When the iteration that is under way ends; `None` while the replica is idle."""

    def move_clock(self, time_ms: float) -> None:
        assert time_ms >= self.now, "the clock went back"
        self.now = time_ms

    def arrive(self, arrival: Arrival) -> Result:
        self.move_clock(arrival.time_ms)
        result = Result("waiting")
        most = self.cache.blocks_for(arrival.prompt + arrival.output - 1)
        too_long = arrival.prompt + arrival.output > self.engine.max_model_len
        if most > self.engine.capacity_blocks or too_long:
            result.status = "rejected"
            return result
        self.wait(Request(arrival, result, self.arrived, came_ms=self.now))
        self.arrived += 1
        if self.ends_at is None:
            self.start_iteration()
        return result

    def wait(self, request: Request, at_front: bool = False) -> None:
        """Put it into the queue: at an end, or where its priority belongs."""
        self.waiting.insert(0 if at_front else len(self.waiting), request)
        if self.engine.by_priority:
            self.waiting.sort(key=lambda each: each.turn)

    def start_iteration(self, is_idle: bool = True) -> None:
        self.budget = self.engine.max_num_batched_tokens
        self.batch = []
        preempted = self.schedule_running()
        if not preempted:
            self.schedule_waiting(self.now if is_idle else self.began_ms)
        self.began_ms = self.now
        self.ends_at = None
        if self.running:
            self.ends_at = self.now + self.duration()
        self.check_invariants()

    def schedule_running(self) -> bool:
        """Step 1; whether it preempted anyone."""
        preempted = False
        for request in list(self.running):
            if request not in self.running:
                continue  # preempted for one before it
            chunk = min(request.total - request.computed, self.budget)
            while request in self.running and self.lacks(request, request.computed + chunk):
                self.preempt_last()
                preempted = True
            if request not in self.running:
                break
            self.cache.take(request, request.computed + chunk)
            self.add_to_batch(request, chunk)
        return preempted

    def lacks(self, request: Request, tokens: int) -> bool:
        """Whether there are too few free blocks for it to hold `tokens` tokens."""
        return self.cache.blocks_for(tokens) - len(request.blocks) > len(self.cache.free)

    def preempt_last(self) -> None:
        """The one admitted last, or the last one by priority: what it got is taken back."""
        request = self.running[-1]
        if self.engine.by_priority:
            request = max(self.running, key=lambda each: each.turn)
        self.running.remove(request)
        self.budget += sum(chunk for other, chunk in self.batch if other is request)
        self.batch = [(other, chunk) for other, chunk in self.batch if other is not request]
        self.cache.keep_own(request)
        self.cache.release(request)
        request.computed = 0
        request.result.preemptions += 1
        self.wait(request, at_front=True)

    def schedule_waiting(self, seen_ms: float) -> None:
        """Step 2. An iteration without others waits for nobody: it knows of all that came."""
        while self.waiting and self.budget > 0 and self.has_seat():
            first = self.waiting[0]
            if self.engine.async_scheduling and self.running and first.came_ms > seen_ms:
                break
            if not self.admit(first):
                break

    def has_seat(self) -> bool:
        return len(self.running) < self.engine.max_num_seqs

    def admit(self, request: Request) -> bool:
        """Admit the first waiting request if its blocks can be had; whether they could."""
        prefix = self.cache.prefix_of(request)
        cached = len(prefix) * self.engine.block_size
        chunk = min(request.total - cached, self.budget)
        tokens = request.total if self.engine.reserve_full else cached + chunk
        fresh = self.cache.blocks_for(tokens) - len(prefix)
        leaving = sum(block.references == 0 for block in prefix)
        if fresh + leaving > len(self.cache.free):
            return False
        self.waiting.pop(0)
        self.running.append(request)
        if request.result.scheduled_ms is None:
            request.result.scheduled_ms = self.now
            request.result.cached_tokens = cached
        request.computed = cached
        self.cache.hit(request, prefix)
        self.cache.take(request, cached + chunk)
        self.add_to_batch(request, chunk)
        return True

    def add_to_batch(self, request: Request, chunk: int) -> None:
        self.budget -= chunk
        if chunk > 0:
            self.batch.append((request, chunk))

    def duration(self) -> float:
        a, b, c, d, e = self.engine.costs
        prefills = [(request, chunk) for request, chunk in self.batch if not request.decoding]
        decodes = [request for request, _ in self.batch if request.decoding]
        prefill_tokens = sum(chunk for _, chunk in prefills)
        read = sum(request.computed + 1 for request in decodes)
        attention = sum(chunk * (request.computed + chunk / 2) for request, chunk in prefills)
        return a + b * prefill_tokens + c * len(decodes) + d * read + e * attention

    def end_iteration(self) -> None:
        assert self.ends_at is not None
        self.move_clock(self.ends_at)
        self.ends_at = None
        for request, chunk in self.batch:
            computed_before = request.computed
            request.computed += chunk
            self.cache.enter(request, computed_before)
            if request.computed == request.total:
                self.generate(request)
        self.check_invariants()
        if self.running or self.waiting:
            self.start_iteration(is_idle=False)

    def generate(self, request: Request) -> None:
        request.generated += 1
        if request.generated == 1:
            request.result.first_token_ms = self.now
        if request.generated == request.arrival.output:
            request.result.finish_ms = self.now
            request.result.status = "finished"
            self.running.remove(request)
            self.cache.release(request)

    def check_invariants(self) -> None:
        self.check_blocks()
        self.check_cached()
        self.check_requests()

    def check_blocks(self) -> None:
        """Free and used blocks make up the capacity; the references are those of who runs."""
        free = [block.number for block in self.cache.free]
        used = [block.number for block in self.cache.blocks if block.references > 0]
        assert len(free) + len(used) == self.engine.capacity_blocks
        assert sorted(free + used) == list(range(self.engine.capacity_blocks))
        for block in self.cache.blocks:
            holders = sum(request.blocks.count(block) for request in self.holders())
            assert block.references == holders

    def holders(self) -> list[Request]:
        """Who holds blocks."""
        return self.running

    def check_cached(self) -> None:
        """An id maps to the block that carries it, and a block that carries one is mapped to."""
        carried = {block.content: block for block in self.cache.blocks if block.content is not None}
        assert carried == self.cache.cached
        assert len(carried) == sum(block.content is not None for block in self.cache.blocks)

    def check_requests(self) -> None:
        """The budget and the number of sequences hold; who waits holds nothing."""
        assert sum(chunk for _, chunk in self.batch) <= self.engine.max_num_batched_tokens
        assert len(self.running) <= self.engine.max_num_seqs
        for request in self.running:
            assert len(set(request.blocks)) == len(request.blocks)
            assert 0 <= request.computed < request.total
            assert self.cache.blocks_for(request.computed) <= len(request.blocks)
        for request in self.waiting:
            assert not request.blocks
            assert request.computed == 0
            assert request not in self.running


def run(engine: Engine, arrivals: Sequence[Arrival]) -> list[Result]:
    """What becomes of every arrival, in their order. At equal times ends come before arrivals."""
    replica = Replica(engine)
    results: list[Result] = []
    for _ in range(EVENT_BUDGET):
        coming = arrivals[len(results)] if len(results) < len(arrivals) else None
        ends_at = replica.ends_at
        if ends_at is not None and (coming is None or ends_at <= coming.time_ms):
            replica.end_iteration()
        elif coming is not None:
            results.append(replica.arrive(coming))
        else:
            assert all(result.status in {"finished", "rejected"} for result in results)
            return results
    raise RuntimeError(f"no end after {EVENT_BUDGET} events")
