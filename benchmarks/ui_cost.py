"""What the live page costs the router, beside a router without it, in one run.

    python benchmarks/ui_cost.py [--rounds N]

Three routers on one core, load and two stand-ins for replicas on another (router_load.c): without
the page (``--no-ui``), with it while nobody looks, and while the page is asked for once a second.
They take turns under 1 KB chat prompts over 64 connections, answered at once or streamed, without
and with a decision log; a ratio is of one round to the router without the page, and the median of
the rounds is given with their range. ``a poll`` is the processor time of one answer of
``/ui/state`` with 50 decisions in it, and its size.

Ranges are wide where other machines share the cores. What the page adds to a request is therefore
measured alone too, in process: from the choice to the end of a stream in the dispatcher, with a log
that keeps nothing or none, the least of many short turns.
"""

from __future__ import annotations

import argparse
import http.client
import os
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.router import SMALL, prompt, stream_options
from benchmarks.router_choice import questions
from benchmarks.router_stand import Load, Proxy, Stand, pointsman, request_of
from pointsman import POLICIES
from pointsman.dispatch.chosen import Chosen
from pointsman.dispatch.dispatcher import Dispatcher, Ending, Memory, Rules, Ticket
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.prefix_index import PrefixIndex
from pointsman.dispatch.record import Event
from pointsman.router.membership import SPARE_SLOTS
from pointsman.router.ui.watch import Watch

EVERY_S = 1.0
POLLS = 100
POLICY = "fewest_misses"
STREAMED = request_of(prompt(1_000), stream_options(4, 0))
LOADS = {"at once": SMALL, "streams": replace(SMALL, request=STREAMED)}
WITHOUT, UNSEEN, SEEN = "without the page", "nobody looks", "asked every second"
REPLICAS, IN_FLIGHT = 2, 64
REQUESTS = 500  # of a turn in process
TURNS_A_ROUND = 10
COLUMNS = ("answers", "log", "page", "CPU, us", "x without", "range", "p99, ms", "errors")


class Eye:
    """Asks for the page's figures on a connection that is kept."""

    def __init__(self, proxy: Proxy) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", proxy.ports[0], timeout=10)

    def look(self) -> int:
        """How many bytes it is told."""
        self._connection.request("GET", "/ui/state")
        answer = self._connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise SystemExit(f"/ui/state was answered with {answer.status}")
        return len(body)

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Once a second until the end."""
        ends = threading.Event()

        def look_on() -> None:
            while not ends.wait(EVERY_S):
                self.look()

        self.look()
        thread = threading.Thread(target=look_on)
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()


def turns(stand: Stand, routers: dict[str, Proxy], load: Load, rounds: int) -> dict[str, list]:
    """Of each router its turns: processor time a request, p99 and errors. The first round does not
    count."""
    eye = Eye(routers[SEEN])
    taken: dict[str, list] = {name: [] for name in routers}
    for number in range(rounds + 1):
        for name, proxy in routers.items():
            with eye.looking() if name == SEEN else nullcontext():
                before_us = proxy.cpu_us()
                measured = stand.load(proxy, load)
                cpu_us = (proxy.cpu_us() - before_us) / load.requests
            if number:
                taken[name].append((cpu_us, measured["p99_ms"], measured["errors"]))
    return taken


def poll(proxy: Proxy) -> tuple[float, int]:
    """Processor time and bytes of one answer, with nothing else to do."""
    eye = Eye(proxy)
    size = eye.look()
    before_us = proxy.cpu_us()
    for _ in range(POLLS):
        size = eye.look()
    return (proxy.cpu_us() - before_us) / POLLS, size


def rows(stand: Stand, has_log: bool, rounds: int) -> Iterator[tuple[str, ...]]:
    flags = {WITHOUT: ("--no-ui",), UNSEEN: (), SEEN: ()}
    log = "with" if has_log else "without"
    routers = {}
    for name, more in flags.items():
        file = stand.folder / f"{name}.jsonl"
        logged = ("--decision-log", str(file)) if has_log else ()
        routers[name] = pointsman(stand, POLICY, *logged, *more, has_log=False)
    for answers, load in LOADS.items():
        taken = turns(stand, routers, load, rounds)
        base = [cpu_us for cpu_us, _, _ in taken[WITHOUT]]
        for name, of in taken.items():
            ratios = sorted(mine[0] / theirs for mine, theirs in zip(of, base, strict=True))
            cpu_us, p99_ms = (statistics.median(each[place] for each in of) for place in (0, 1))
            ratio = f"{statistics.median(ratios):.3f}"
            spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
            errors = sum(each[2] for each in of)
            shown = (answers, log, name, f"{cpu_us:.1f}", ratio, spread, f"{p99_ms:.1f}")
            yield (*shown, f"{errors:.0f}")
    cpu_us, size = poll(routers[SEEN])
    print(f"a poll, {log} a log: {cpu_us:.0f} us, {size} bytes", flush=True)


class Kept:
    """A log that keeps nothing."""

    lost_lines = 0

    def write(self, line: Event) -> None:
        pass

    def write_choice(self, chosen: Chosen) -> None:
        pass


class Streams:
    """Streams that come and go in a dispatcher, with so many others in flight."""

    def __init__(self, has_log: bool) -> None:
        room = REPLICAS + SPARE_SLOTS
        self.dispatcher = Dispatcher(
            Rules(POLICIES[POLICY]),
            [ReplicaFacts()] * REPLICAS,
            lambda: time.monotonic() * 1e3,
            memory=Memory(room, PrefixIndex(room)),
            log=Kept() if has_log else None,
        )
        self._asked = questions()
        self._tickets = deque(self._sent() for _ in range(IN_FLIGHT))

    def turn_us(self) -> float:
        """Processor time of one of them."""
        before_ns = time.process_time_ns()
        for _ in range(REQUESTS):
            ticket = self._sent()
            ticket.first_token()
            self._tickets.append(ticket)
            self._tickets.popleft().end(Ending())
        return (time.process_time_ns() - before_ns) / 1e3 / REQUESTS

    def _sent(self) -> Ticket:
        return self.dispatcher.choose(next(self._asked), range(REPLICAS))


def alone(has_log: bool, rounds: int) -> tuple[float, float]:
    """A stream's time while nobody looks, and while somebody does."""
    streams = Streams(has_log)
    watch = Watch(streams.dispatcher, later=lambda seconds, call: NeverCalled())
    unseen_us, seen_us = [], []
    for _ in range(rounds * TURNS_A_ROUND):
        watch.end()
        unseen_us.append(streams.turn_us())
        watch.look(time.monotonic() * 1e3)
        seen_us.append(streams.turn_us())
    return min(unseen_us), min(seen_us)


class NeverCalled:
    """In place of a timer: turns are ended by hand."""

    def cancel(self) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    print(f"load average {os.getloadavg()[0]:.1f}; {time.strftime('%Y-%m-%d %H:%M')}", flush=True)
    for cells in (COLUMNS, ("---",) * len(COLUMNS)):
        print("| " + " | ".join(cells) + " |", flush=True)
    for has_log in (False, True):
        unseen_us, seen_us = alone(has_log, rounds)
        log = "with" if has_log else "without"
        print(f"alone, {log} a log: {unseen_us:.2f} us, {seen_us:.2f} us while somebody looks")
    with Stand() as stand:
        for has_log in (False, True):
            for cells in rows(stand, has_log, rounds):
                print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
