"""The router's choice alone, in process: microseconds each, without network or HTTP.

    python benchmarks/router_choice.py

``choose`` is all that a request costs in the dispatcher until it is sent: ``ask``, the view and
what the policy says of it, then the accounts; ``end`` is what it costs when its answer has ended;
``prefix`` is what the look into the index takes of ``ask``. Prompts of 1 KB, new and known.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pointsman import POLICIES
from pointsman.dispatch.dispatcher import Dispatcher, Ending, Memory, Question, Rules
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.prefix_index import Chain, PrefixIndex
from pointsman.router.membership import SPARE_SLOTS
from pointsman.router.prompt import BLOCK_TOKENS

# Policy, replicas, requests in flight, target in us of ``choose``.
CASES = (
    ("round_robin", 64, 128, None),
    ("queue_aware", 64, 128, 5.0),
    ("locality_aware", 64, 128, 5.0),
    ("earliest_first_token", 64, 128, 5.0),
    ("fewest_misses", 16, 500, 20.0),
    ("fewest_misses", 2, 64, None),
)
CHOICES = 2_000
RUNS = 7
BLOCKS = 4  # of a prompt of 1 KB


def questions() -> Iterator[Question]:
    """Of 100 conversations; every second one has a turn that nobody has seen."""
    number = 0
    while True:
        number += 1
        shared = [(number % 100) * 10 + block for block in range(BLOCKS - 1)]
        last = number if number % 2 else 7
        yield Question(
            request_id=f"{number:032x}",
            path="/v1/chat/completions",
            prompt_tokens=256,
            output_tokens=64,
            chain=Chain([*shared, (number % 100) * 10 + (last << 20)], BLOCK_TOKENS),
            streams=bool(number % 2),
        )


def measured(policy: str, replicas: int, in_flight: int) -> dict[str, float]:
    """Each part of a choice, at so many requests in flight."""
    room = replicas + SPARE_SLOTS
    dispatcher = Dispatcher(
        Rules(POLICIES[policy]),
        [ReplicaFacts()] * replicas,
        lambda: time.monotonic() * 1e3,
        memory=Memory(room, PrefixIndex(room)),
    )
    asked, tickets = questions(), deque()
    candidates = list(range(replicas))
    for _ in range(in_flight):
        tickets.append(dispatcher.choose(next(asked), candidates))
        if len(tickets) % 2:
            tickets[-1].first_token()

    def turn() -> tuple[float, float]:
        batch = [next(asked) for _ in range(CHOICES)]
        chosen_s = ended_s = 0.0
        for question in batch:
            before = time.perf_counter()
            ticket = dispatcher.choose(question, candidates)
            between = time.perf_counter()
            tickets.popleft().end(Ending())
            ended_s += time.perf_counter() - between
            chosen_s += between - before
            tickets.append(ticket)
        return chosen_s, ended_s

    turns = [turn() for _ in range(RUNS)]
    question = next(asked)
    chain, cached = question.chain, dispatcher.ledger.cached
    return {
        "choose_us": per_call_us([chosen for chosen, _ in turns]),
        "end_us": per_call_us([ended for _, ended in turns]),
        "prefix_us": repeated_us(lambda: dispatcher.prefixes.fill(chain, cached)),
        "ask_us": repeated_us(lambda: dispatcher.ask(question, candidates)),
    }


def per_call_us(seconds: list[float]) -> float:
    return round(statistics.median(seconds) * 1e6 / CHOICES, 2)


def repeated_us(call: Callable[[], object]) -> float:
    seconds = []
    for _ in range(RUNS):
        before = time.perf_counter()
        for _ in range(CHOICES):
            call()
        seconds.append(time.perf_counter() - before)
    return per_call_us(seconds)


def rows() -> Iterator[dict[str, object]]:
    for policy, replicas, in_flight, target in CASES:
        parts = measured(policy, replicas, in_flight)
        row = {"case": "choice", "policy": policy, "replicas": replicas, "in_flight": in_flight}
        yield {**row, **parts, "target_us": target}


def table(rows: list[dict[str, object]]) -> str:
    """The rows in Markdown, as they stand in docs/benchmarks.md."""
    names = [name for name in rows[0] if name != "case"]
    lines = ["| " + " | ".join(name.replace("_us", ", us") for name in names) + " |"]
    lines.append("|---" * len(names) + "|")
    for row in rows:
        cells = ("" if row[name] is None else str(row[name]) for name in names)
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    for row in rows():
        print(json.dumps(row), flush=True)
