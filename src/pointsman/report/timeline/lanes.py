"""Lanes: what overlaps in time lies on different ones.

A trace file's track holds spans that nest, never spans that overlap, so that a replica which runs
several requests at once has a track a running slot. The least lane that is free is taken, which
needs as many lanes as there are spans at the busiest instant, and no more.
"""

from __future__ import annotations

import heapq

import numpy as np

from pointsman.report.timeline.story import Places, Stay

NO_LANE = -1


def lanes_of(stay: Stay, rows: int, most: int) -> Places:
    """The lane of each of the first ``rows`` stays at its place, from 0.

    NO_LANE for requests that never were there, and where all ``most`` lanes are taken.
    """
    begin_ms, end_ms = stay.begin_ms[:rows], stay.end_ms[:rows]
    lanes = np.full(rows, NO_LANE, dtype=np.int64)
    ends: dict[int, list[tuple[float, int]]] = {}
    free: dict[int, list[int]] = {}
    count: dict[int, int] = {}
    for row in in_order_of_begin(stay, rows).tolist():
        place = int(stay.place[row])
        busy = ends.setdefault(place, [])
        idle = free.setdefault(place, [])
        while busy and busy[0][0] <= begin_ms[row]:
            heapq.heappush(idle, heapq.heappop(busy)[1])
        if not idle and count.get(place, 0) < most:
            heapq.heappush(idle, count.get(place, 0))
            count[place] = count.get(place, 0) + 1
        if idle:
            lanes[row] = heapq.heappop(idle)
            heapq.heappush(busy, (float(end_ms[row]), int(lanes[row])))
    return lanes


def in_order_of_begin(stay: Stay, rows: int) -> Places:
    """The rows that were there, those that began first first; of one instant the shortest first,
    so that what takes no time has ended before the next one begins."""
    begin_ms, end_ms = stay.begin_ms[:rows], stay.end_ms[:rows]
    there = np.flatnonzero(~np.isnan(begin_ms))
    return there[np.lexsort((there, end_ms[there], begin_ms[there]))]
