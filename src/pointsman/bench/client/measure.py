"""A whole measurement: ask how long prompts are, send the load, gather what was seen."""

from __future__ import annotations

import asyncio
import gc
import resource
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass

import msgspec
import uvloop

from pointsman.bench.client.clock import LoadClock
from pointsman.bench.client.disturbance import Disturbance, Effort, disturbance
from pointsman.bench.client.load import Gaps, Load, Sending
from pointsman.bench.client.progress import Watch, progress_of
from pointsman.bench.client.prompts import Prompts
from pointsman.bench.client.rows import Row
from pointsman.bench.client.sender import Sender
from pointsman.bench.client.target import Target
from pointsman.bench.client.tokenizer import Lengths, count_tokens, lengths_of

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """``rows`` in order of the workload, one for each request that was offered."""

    rows: tuple[Row, ...]
    gaps: Gaps
    planned: int  # requests of the workload
    is_complete: bool  # False: interrupted; the rows are what was measured until then
    disturbance: Disturbance
    lengths: Lengths
    started_unix_s: float  # the time of day of the rows' 0
    seed: int  # of the prompts


def measure(
    target: Target, load: Load, watch: Watch | None = None, lengths: Lengths | None = None
) -> Measured:
    """Send the load from this process; SIGINT and SIGTERM end it early, with what was measured.

    To be called in the main thread. ``lengths`` of an earlier measurement of the same model spare
    the asking. Raises InputError for a workload without tokens, MachineError where the target does
    not answer a first request.
    """
    _allow_all_files()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_until_told(target, load, watch or Watch(), lengths))


async def send_load(
    target: Target, load: Load, watch: Watch | None = None, lengths: Lengths | None = None
) -> Measured:
    """The same in an event loop that runs already; ``watch.stop`` ends it early."""
    watch = watch or Watch()
    clock = LoadClock()
    if lengths is None:
        async with _open(Sender(target, clock)) as sender:
            lengths = await lengths_of(sender, target)
    prompts = Prompts(load.workload, lengths, load.seed)
    async with _open(Sender(target, clock)) as sender:
        sending = Sending(load, target, prompts, sender)
        effort = await _sent(sending, clock, watch)
        rows = await _with_counted_texts(sending, sender)
    requested_rps = load.how.requested_rps(load.workload)
    return Measured(
        rows=rows,
        gaps=sending.gaps(),
        planned=len(load.workload),
        is_complete=not sending.is_interrupted,
        disturbance=disturbance(rows, effort, requested_rps, load.tolerance),
        lengths=lengths,
        started_unix_s=clock.started_unix_s,
        seed=load.seed,
    )


async def _sent(sending: Sending, clock: LoadClock, watch: Watch) -> Effort:
    """Send it while it is watched; what it took."""
    telling = asyncio.create_task(_tell(sending, clock, watch))
    watch.follow(sending)
    clock.restart()
    cpu_s = time.process_time()
    try:
        with _no_collections():
            await sending.run(clock)
        wall_ms, cpu_ms = clock(), (time.process_time() - cpu_s) * 1e3
    finally:
        watch.follow(None)
        telling.cancel()
    watch.tell(progress_of(sending, wall_ms))
    return Effort(sending.heartbeat.lags(), wall_ms, cpu_ms, sending.refused_here)


async def _tell(sending: Sending, clock: LoadClock, watch: Watch) -> None:
    while True:
        await asyncio.sleep(watch.every_ms / 1e3)
        watch.tell(progress_of(sending, clock()))


async def _with_counted_texts(sending: Sending, sender: Sender) -> tuple[Row, ...]:
    """The rows in order, those without usage counted by the server's tokenizer, if it has one."""
    rows = sorted(sending.rows, key=lambda row: row.number)
    for place, row in enumerate(rows):
        text = sending.untold.get(row.number)
        if not text:
            continue
        tokens = await count_tokens(sender, sending.target, text)
        if tokens is None:
            break
        rows[place] = msgspec.structs.replace(row, output_tokens=tokens, tokens_from="tokenizer")
    return tuple(rows)


async def _until_told(
    target: Target, load: Load, watch: Watch, lengths: Lengths | None
) -> Measured:
    """A signal ends the load where it runs, and everything where it does not run yet."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "a coroutine of a runner is a task"

    def told() -> None:
        if not watch.stop():
            task.cancel()

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number in _SIGNALS:
        loop.add_signal_handler(number, told)
    try:
        return await send_load(target, load, watch, lengths)
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


@asynccontextmanager
async def _open(sender: Sender) -> AsyncIterator[Sender]:
    await sender.open()
    try:
        yield sender
    finally:
        sender.close()


@contextmanager
def _no_collections() -> Iterator[None]:
    """A collection goes through everything that was ever imported, and takes as long as a token.

    What a request leaves behind has no cycles that last.
    """
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _allow_all_files() -> None:
    """Each request in flight is an open file; the soft limit is often 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # a system with a limit that it does not tell
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
