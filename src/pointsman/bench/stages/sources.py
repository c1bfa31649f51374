"""Where a group's queue wait and hand-off come from, or why they are not known.

A figure is of the requests' own values, where there are any, or of the engine's histograms; never
of some of both.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pointsman.bench.stages.histograms import Histogram
from pointsman.bench.stages.means import EngineTotals, measured_rows
from pointsman.bench.stages.pages import PATH, Growth, Pages, growth
from pointsman.bench.stages.rows import LLAMACPP, SHARED_STORAGE, JoinedRow
from pointsman.bench.stages.served import Served
from pointsman.evidence.measured import Told, Total
from pointsman.evidence.metrics import MetricName

NOT_APART = "nothing is handed off: prefill and decode are not apart"
_WHOLE_LOAD = f"of {PATH}, the mean of the whole load, warm-up too"
_OF_ANSWERS = (
    "the client's stamps and llama.cpp's prompt_ms: from intended arrival to the first token, less"
    " what it says that the prefill took"
)
_OF_PAIRS = (
    "the client's stamps, the router's log and the prefill replica's prompt_ms: from intended"
    " arrival to the answer of the prefill, less what it says that it took"
)


@dataclass(frozen=True, slots=True)
class Seen:
    """One load, its rows joined."""

    rows: Sequence[JoinedRow]
    has_router: bool
    before: Pages
    after: Pages

    def growth(self, histogram: Histogram, urls: Sequence[str]) -> Growth:
        """What the load added to it."""
        return growth(histogram, urls, self.before, self.after)


def told_of(served: Served, loads: Sequence[Seen]) -> dict[MetricName, Told]:
    """Of queue wait, and of time and bytes of the hand-off."""
    return {
        "queue_wait_ms": _queue_wait(served, loads),
        "kv_handoff_ms": _handoff_ms(served, loads),
        "kv_handoff_bytes": _handoff_bytes(served, loads),
    }


def engine_totals(served: Served, loads: Sequence[Seen]) -> EngineTotals:
    """What the histograms say of these loads together, as far as they do of each."""
    told = served.histograms
    return EngineTotals(
        queue_wait=_together(told.queue_wait_ms, served.takers, loads),
        prefill=_together(told.prefill_ms, served.takers, loads),
        handoff=_together(told.handoff_ms, served.urls, loads) if served.handoff else None,
    )


def _queue_wait(served: Served, loads: Sequence[Seen]) -> Told:
    rows = [row for load in loads for row in measured_rows(load.rows)]
    if any(row.queue_wait_ms is not None for row in rows):
        return Told(source=_OF_PAIRS if served.prefills else _OF_ANSWERS)
    histogram = served.histograms.queue_wait_ms
    if histogram is None:
        engine = served.signals or "an engine that is not known"
        return Told(reason=f"{engine} did not tell how long requests waited there, or computed")
    grown = [load.growth(histogram, served.takers) for load in loads]
    reason = _reason(grown)
    if reason is not None:
        return Told(reason=reason)
    has_router = any(load.has_router for load in loads)
    stamps = "the client's stamps and the router's log" if has_router else "the client's stamps"
    return Told(
        source=f"until an engine had it {stamps}; there {histogram.name} {_WHOLE_LOAD}",
        totals=tuple(
            _from_arrival(each.total or Total(), load)
            for each, load in zip(grown, loads, strict=True)
        ),
    )


def _from_arrival(there: Total, load: Seen) -> Total:
    """With what each request took until an engine had it; means add up."""
    before = [
        row.client_delay_ms + (row.router_ms or 0.0)
        for row in measured_rows(load.rows)
        if row.client_delay_ms is not None and (row.router_ms is not None or not load.has_router)
    ]
    if there.mean is None or not before:
        return Total()
    return Total(there.mean * len(before) + math.fsum(before), len(before))


def _handoff_ms(served: Served, loads: Sequence[Seen]) -> Told:
    reason = _nothing_moved(served, loads)
    if reason is not None:
        return Told(reason=reason)
    if served.handoff == LLAMACPP:
        source = "the router's log: from the end of the prefill to the end of the slot's restore"
        return Told(source=source)
    if served.handoff == SHARED_STORAGE:
        return Told(
            reason="nobody tells: the connector writes and reads its files within prefill and"
            " decode, and the router sees the first token only"
        )
    return _of_histogram(served.histograms.handoff_ms, served, loads)


def _handoff_bytes(served: Served, loads: Sequence[Seen]) -> Told:
    reason = _nothing_moved(served, loads)
    if reason is not None:
        return Told(reason=reason)
    if served.handoff == LLAMACPP:
        return Told(source="the router's log: the bytes that llama.cpp wrote of each slot")
    if served.handoff == SHARED_STORAGE:
        if served.kv_bytes_per_token is None:
            return Told(reason="nobody tells, and kv_bytes_per_token of the workload is not given")
        each = f"{served.kv_bytes_per_token:g} bytes (kv_bytes_per_token of the workload)"
        return Told(source=f"computed, not measured: prompt tokens by usage, times {each}")
    return _of_histogram(served.histograms.handoff_bytes, served, loads)


def _nothing_moved(served: Served, loads: Sequence[Seen]) -> str | None:
    """Why there was no hand-off, or why that is not known."""
    if served.handoff is None:
        return NOT_APART
    if not any(load.has_router for load in loads):
        return "the router's log is not there, which says what was handed off"
    rows = [row for load in loads for row in load.rows]
    if any(row.is_handed_off for row in rows):
        return None
    causes = Counter(row.fell_back for row in rows if row.fell_back is not None)
    told = ", ".join(f"{count} {cause}" for cause, count in sorted(causes.items()))
    return f"no request was handed off{': ' if told else ''}{told}"


def _of_histogram(histogram: Histogram | None, served: Served, loads: Sequence[Seen]) -> Told:
    if histogram is None:
        return Told(reason=f"{served.signals or 'an engine that is not known'} does not tell")
    grown = [load.growth(histogram, served.urls) for load in loads]
    reason = _reason(grown)
    if reason is not None:
        return Told(reason=reason)
    totals = [
        _of_requests(each.total or Total(), histogram, load)
        for each, load in zip(grown, loads, strict=True)
    ]
    over = ", over the requests that the router's log has as handed off"
    return Told(
        source=f"{histogram.name} {_WHOLE_LOAD}{over if histogram.is_by_rank else ''}",
        totals=tuple(totals),
    )


def _of_requests(total: Total, histogram: Histogram, load: Seen) -> Total:
    """Parts of ranks make up a request's whole."""
    if not histogram.is_by_rank or not total.count:
        return total
    return Total(total.amount, sum(row.is_handed_off for row in load.rows))


def _reason(grown: Sequence[Growth]) -> str | None:
    return next((each.reason for each in grown if each.total is None), None)


def _together(
    histogram: Histogram | None, urls: Sequence[str], loads: Sequence[Seen]
) -> Total | None:
    if histogram is None:
        return None
    totals = [load.growth(histogram, urls).total for load in loads]
    known = [total for total in totals if total is not None]
    if len(known) < len(totals):
        return None
    return Total(math.fsum(each.amount for each in known), sum(each.count for each in known))
