"""How long a router does nothing else while its log goes on in a further file.

    python benchmarks/log_snapshot.py

The accounts of so many replicas with so many requests in flight on each, of which most decode, are
written as a snapshot, and read again as ``replay`` does. The median of 20, and the longest.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pointsman.dispatch.dispatcher import Rules
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.ledger import Ledger
from pointsman.dispatch.log_rotation import Rotation
from pointsman.dispatch.log_writer import DecisionLog
from pointsman.dispatch.record import Line, Reading
from pointsman.dispatch.snapshot import check_snapshot, restore, snapshot_of
from pointsman.policies.catalogue import policy_named
from pointsman.router.router_settings import RouterSettings, head_of
from pointsman.router.upstream import replica_address

SIZES = ((2, 64), (16, 500), (64, 500))


def busy_ledger(replicas: int, each: int) -> Ledger:
    """Requests that came and went in no order, twice as many as are in flight now."""
    draws = random.Random(1)
    ledger = Ledger([ReplicaFacts()] * replicas)
    slots: list[int] = []
    for number in range(2 * replicas * each):
        now_ms = 0.1 * number
        slot = ledger.send(number % replicas, (draws.randrange(1, 8_000), 1), now_ms, True)
        if draws.random() < 0.8:
            ledger.first_token(slot, now_ms)
        slots.append(slot)
        if len(slots) > replicas * each:
            ledger.end(slots.pop(draws.randrange(len(slots))), draws.randrange(3_000), now_ms)
    return ledger


def times_ms(act: Callable[[], object]) -> tuple[float, float]:
    took = []
    for _ in range(20):
        began_s = time.perf_counter()
        act()
        took.append(1e3 * (time.perf_counter() - began_s))
    return sorted(took)[10], max(took)


def row(replicas: int, each: int, folder: Path) -> str:
    ledger = busy_ledger(replicas, each)
    urls = [replica_address(f"http://127.0.0.1:{8001 + k}") for k in range(replicas)]
    head = head_of(RouterSettings(urls, Rules(policy_named("round_robin")), "round_robin"))
    log = DecisionLog(folder / f"log-{replicas}-{each}", head, print, Rotation(most_bytes=1))

    def rotate() -> None:
        log.write(Reading(0, 1e6, None, None, None))
        log.rotate_if_full(lambda: snapshot_of(ledger, 1e6))

    text = msgspec.json.encode(snapshot_of(ledger, 1e6))

    def read() -> None:
        line = msgspec.json.decode(text, type=Line)
        check_snapshot(line, replicas, "here")
        restore(Ledger([ReplicaFacts()] * replicas), line)

    written, longest = times_ms(rotate)
    log.close()
    figures = (f"{written:.2f}", f"{longest:.2f}", f"{times_ms(read)[0]:.2f}")
    return " | ".join(map(str, (replicas, each, f"{len(text) / 1e6:.2f}", *figures)))


def main() -> None:
    print("| replicas | in flight on each | MB | to begin a file, ms | longest | to read it, ms |")
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for replicas, each in SIZES:
            print(f"| {row(replicas, each, Path(folder))} |")


if __name__ == "__main__":
    main()
