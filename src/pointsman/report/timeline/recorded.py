"""A router's decision log as a story: every choice with its reason, and what came of it.

A router does not see when an engine takes a request up: from the choice to the first token is one
stage, of which the engine's queue is a part.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np

from pointsman.dispatch.log_file import Log
from pointsman.dispatch.record import (
    OK,
    STATUSES,
    Choice,
    FellBack,
    FirstToken,
    Prefilled,
    Reading,
)
from pointsman.report.timeline.story import (
    NOWHERE,
    ROUTER,
    Arrow,
    Gauge,
    Instants,
    Places,
    Stage,
    Stay,
    Story,
)
from pointsman.workload.workload import Floats

HELD = "held"
PREFILL = "prefill"
TO_FIRST_TOKEN = "to first token"
DECODE = "decode"
ANSWER = "answer"  # its first token was not seen
CUT_SHORT = "cut short"


def story_of_log(log: Log, label: str) -> Story:
    """A row a request that was sent; one that was tried twice has two.

    A request without an outcome, where the log ends before it does, has its choice alone.
    """
    choices = log.choices
    here, there = _places(log)
    reasons = tuple(sorted({choice.reason for choice in choices}))
    code = np.array([reasons.index(choice.reason) for choice in choices], dtype=np.int64)
    places = (("replica", here), ("decode replica", np.where(there == here, NOWHERE, there)))
    return Story(
        label=label,
        places=tuple(log.replicas),
        requests=[choice.request_id for choice in choices],
        stays=_stays(log, here, there),
        instants=(Instants(reasons, code, _sent_ms(log), places), _failures(log)),
        arrows=(Arrow("hand-off", (1, 0), (2, 0)),),
        gauges=_gauges(log),
        facts={
            "attempt": np.array([choice.attempt for choice in choices], dtype=np.int64),
            "priced_tokens": np.array([choice.priced_tokens for choice in choices]),
            "hit_tokens": np.array([choice.hit_tokens for choice in choices], dtype=np.int64),
            "expected_wait_ms": np.array([choice.expected_wait_ms for choice in choices]),
        },
        notes=_notes(log),
    )


def _places(log: Log) -> tuple[Places, Places]:
    """Where each prompt was computed and where each answer was generated; often the same."""
    pairs = [
        (choice.replica, None) if isinstance(choice.pair, msgspec.UnsetType) else choice.pair
        for choice in log.choices
    ]
    here = np.array([first for first, _ in pairs], dtype=np.int64)
    there = np.array([first if second is None else second for first, second in pairs], np.int64)
    return here, there


def _stays(log: Log, here: Places, there: Places) -> tuple[Stay, Stay, Stay]:
    """In the router; where the prompt is computed, if that is elsewhere; where it is answered."""
    sent_ms, first_ms, handed_ms = _sent_ms(log), _first_ms(log), _handed_ms(log)
    end_ms, went_well = _outcomes(log)
    waited_ms = np.array([choice.waited_ms for choice in log.choices])
    held = Stage(HELD, "h", sent_ms - waited_ms, sent_ms).only(waited_ms > 0)
    is_apart, is_seen = here != there, ~np.isnan(first_ms)
    begin_ms = np.where(is_apart, handed_ms, sent_ms)
    prompt = Stage(TO_FIRST_TOKEN, "=", begin_ms, first_ms).only(~np.isnan(end_ms))
    decode = Stage(DECODE, "#", first_ms, end_ms).only(went_well)
    answer = Stage(ANSWER, "#", begin_ms, end_ms).only(went_well & ~is_seen)
    cut = Stage(CUT_SHORT, "x", np.where(is_seen, first_ms, begin_ms), end_ms).only(~went_well)
    prefill = Stage(PREFILL, "=", sent_ms, handed_ms).only(is_apart)
    return (
        Stay(np.full(len(log.choices), ROUTER), (held,), runs=False),
        Stay(np.where(is_apart, here, NOWHERE), (prefill,), runs=True),
        Stay(there, (prompt, decode, answer, cut), runs=True),
    )


def _sent_ms(log: Log) -> Floats:
    return np.array([choice.time_ms for choice in log.choices], dtype=np.float64)


def _first_ms(log: Log) -> Floats:
    """When each first token came, as its own line says or, in its place, the outcome."""
    told = {each.sequence: each.time_ms for each in log.events if isinstance(each, FirstToken)}
    for sequence, outcome in log.outcomes.items():
        if outcome.first_token_ms is not None:
            told.setdefault(sequence, outcome.first_token_ms)
    return _by_choice(log, lambda choice: told.get(choice.sequence))


def _handed_ms(log: Log) -> Floats:
    """When the decode replica's turn came: after a prefill, or where there was no hand-off."""
    told = {
        each.sequence: each.time_ms for each in log.events if isinstance(each, Prefilled | FellBack)
    }
    return _by_choice(log, lambda choice: told.get(choice.sequence))


def _outcomes(log: Log) -> tuple[Floats, np.ndarray[tuple[int], np.dtype[np.bool_]]]:
    """When each request ended, and which of them well."""
    ended = [log.outcomes.get(choice.sequence) for choice in log.choices]
    end_ms = np.array([np.nan if each is None else each.finish_ms for each in ended])
    went_well = np.array([each is not None and each.status == OK for each in ended], dtype=bool)
    return end_ms, went_well


def _failures(log: Log) -> Instants:
    """How those ended that did not end well."""
    ended = [log.outcomes.get(choice.sequence) for choice in log.choices]
    code = [STATUSES.index(OK if each is None else each.status) for each in ended]
    end_ms, went_well = _outcomes(log)
    return Instants(STATUSES, np.array(code, dtype=np.int64), np.where(went_well, np.nan, end_ms))


def _by_choice(log: Log, of: Callable[[Choice], float | None]) -> Floats:
    found = map(of, log.choices)
    return np.array([np.nan if each is None else each for each in found], dtype=np.float64)


def _gauges(log: Log) -> tuple[Gauge, ...]:
    """The engines' own, as they were read."""
    readings = [each for each in log.events if isinstance(each, Reading)]
    told = (
        ("engine: waiting", "requests", lambda each: each.waiting),
        ("engine: running", "requests", lambda each: each.running),
        ("engine: KV cache used", "%", lambda each: each.kv_use and 100.0 * each.kv_use),
    )
    return tuple(
        gauge
        for place in range(len(log.replicas))
        for name, unit, of in told
        if (gauge := _gauge((name, unit, place), readings, of)) is not None
    )


def _gauge(
    what: tuple[str, str, int], readings: list[Reading], of: Callable[[Reading], float | None]
) -> Gauge | None:
    points = [
        (each.time_ms, value)
        for each in readings
        if each.replica == what[2] and (value := of(each)) is not None
    ]
    if not points:
        return None
    at_ms, values = np.array(points, dtype=np.float64).T
    return Gauge(*what, np.ascontiguousarray(at_ms), np.ascontiguousarray(values))


def _notes(log: Log) -> tuple[str, ...]:
    """What the log holds and a file of choices does not show."""
    notes = []
    if log.unplaced:
        notes.append(f"{len(log.unplaced):,} requests that got no replica are not shown")
    if log.earlier_outcomes:
        notes.append(
            f"{log.earlier_outcomes:,} requests that were sent before the log are not shown"
        )
    if log.unfinished:
        notes.append(f"{log.unfinished:,} requests without an outcome have their choice alone")
    return tuple(notes)
