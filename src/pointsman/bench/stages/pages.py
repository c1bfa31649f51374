"""Engines' pages of metrics before and after a load, and what was added up in between.

before = pages_of(urls); measure(...); after = pages_of(urls)
growth(histogram, urls, before, after)
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pointsman.bench.engines.http_calls import call, is_ok
from pointsman.bench.stages.histograms import Histogram, names
from pointsman.core.errors import InputError, MachineError
from pointsman.core.metrics_page import samples_of
from pointsman.evidence.measured import Total

PATH = "/metrics"
TIMEOUT_S = 5.0
_NAMES = names()
_WANTED = frozenset(f"{name}_{end}" for name in _NAMES for end in ("sum", "count"))


@dataclass(frozen=True, slots=True)
class Page:
    """By histogram what all its series together have counted; ``problem``: why it is no page."""

    totals: Mapping[str, Total]
    problem: str | None = None


Pages = Mapping[str, Page]  # by URL


@dataclass(frozen=True, slots=True)
class Growth:
    """What a load added to a histogram, in ms or bytes; None with the reason."""

    total: Total | None
    reason: str | None = None


def pages_of(urls: Iterable[str]) -> dict[str, Page]:
    """What the engines there have counted by now; a page that cannot be read says why."""
    return {url: _page_at(url) for url in urls}


def page_of(text: str) -> Page:
    """The histograms of a page. Raises InputError, naming the line that is none."""
    sums: dict[str, float] = defaultdict(float)
    for sample in samples_of(text, _WANTED):
        sums[sample.name] += sample.value
    totals = {
        name: Total(sums[f"{name}_sum"], int(sums[f"{name}_count"]))
        for name in _NAMES
        if {f"{name}_sum", f"{name}_count"} <= sums.keys()
        and math.isfinite(sums[f"{name}_sum"] + sums[f"{name}_count"])
    }
    return Page(totals)


def growth(histogram: Histogram, urls: Sequence[str], before: Pages, after: Pages) -> Growth:
    """What the engines at these URLs counted between the two snapshots, together.

    A histogram that only came to be in between began at 0.
    """
    name, amount, count, is_there = histogram.name, 0.0, 0, False
    for url in urls:
        if url not in before or url not in after:
            return Growth(None, f"{url}: no page of metrics was read before and after the load")
        first, last = before[url], after[url]
        problem = first.problem or last.problem
        if problem is not None:
            return Growth(None, f"{url}{PATH}: {problem}")
        was, now = first.totals.get(name, Total()), last.totals.get(name)
        if now is None:
            continue
        is_there = True
        if now.count < was.count or now.amount < was.amount:
            return Growth(None, f"{url}: {name} went back: it was restarted within the load")
        amount += now.amount - was.amount
        count += now.count - was.count
    if not is_there:
        return Growth(None, f"no page of metrics has {name}")
    return Growth(Total(amount * histogram.scale, count))


def _page_at(url: str) -> Page:
    try:
        answer = call(url, PATH, timeout_s=TIMEOUT_S)
        if not is_ok(answer):
            return Page({}, f"answers with {answer.status}")
        return page_of(answer.body.decode())
    except MachineError:
        return Page({}, "no answer")
    except (InputError, UnicodeDecodeError) as error:
        return Page({}, str(error))
