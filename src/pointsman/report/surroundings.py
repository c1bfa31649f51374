"""What surrounds a fleet that batches, in words: old signals, holding, replicas that fail."""

from __future__ import annotations

from collections.abc import Iterator

from pointsman.report.table import number
from pointsman.sim.conditions import Conditions
from pointsman.sim.routers import RANDOM


def surroundings(conditions: Conditions) -> Iterator[str]:
    """A text each; nothing for what is as by default."""
    signals, holding, loop = conditions.signals, conditions.holding, conditions.closed_loop
    if signals.metrics_age_ms or signals.event_delay_ms:
        yield (
            f"signals: engines' gauges read every {number(signals.metrics_age_ms)} ms, events of"
            f" caches {number(signals.event_delay_ms)} ms late"
        )
    if conditions.routers.count > 1:
        way = "at random" if conditions.routers.dealt == RANDOM else "by session"
        yield f"routers: {conditions.routers.count}, requests dealt to them {way}"
    if holding is not None:
        yield (
            f"holding: while more than {number(holding.wait_ms)} ms of prefill wait,"
            f" {holding.order}, at most {holding.most_held:,} requests"
        )
    if loop is not None:
        yield (
            f"closed loop: {loop.concurrency:,} requests in flight, {number(loop.think_ms)} ms"
            " between; the trace's arrival times are not used"
        )
    for change in conditions.changes:
        factor = f" by {number(change.factor)}" if change.event == "slows" else ""
        yield f"replica {change.replica} {change.event}{factor} at {number(change.time_ms)} ms"
