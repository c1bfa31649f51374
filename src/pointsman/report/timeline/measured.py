"""What a load client saw of a measured group, as a story.

A client does not see when an engine takes a request up: from the send to the first token is one
stage, of which the engine's queue is a part.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from pointsman.bench.client.rows import OK, STATUSES, Row
from pointsman.report.timeline.story import (
    NOWHERE,
    ROUTER,
    Arrow,
    Instants,
    Places,
    Stage,
    Stay,
    Story,
)
from pointsman.workload.workload import Floats

IN_CLIENT = "in the client"
TO_FIRST_TOKEN = "to first token"
DECODE = "decode"
CUT_SHORT = "cut short"
TARGET = "the target"  # of rows that name no replica


def story_of_rows(rows: Sequence[Row], label: str) -> Story:
    """The rows of one group, warm-up among them; ``label`` is the group's name.

    Raises InputError where a time lies beyond what a file can hold, when it is written.
    """
    names = sorted({name for row in rows for name in (row.replica, row.prefill_replica) if name})
    if any(row.sent_ms is not None and row.replica is None for row in rows):
        names.append(TARGET)
    number = {name: place for place, name in enumerate(names)}
    return Story(
        label=label,
        places=tuple(names),
        requests=[row.request_id for row in rows],
        stays=_stays(rows, number),
        instants=(_reasons(rows, number), _failures(rows)),
        arrows=(Arrow("hand-off", (1, 0), (2, 1)),),
        facts={
            "prompt_tokens": _integers(rows, lambda row: row.prompt_tokens),
            "output_tokens": _integers(rows, lambda row: row.output_tokens),
            "cached_tokens": _integers(rows, lambda row: row.cached_tokens),
            "expected_wait_ms": _times(rows, lambda row: row.expected_wait_ms),
            "warmup": _integers(rows, lambda row: 1 if row.is_warmup else None),
        },
    )


def _stays(rows: Sequence[Row], number: dict[str, int]) -> tuple[Stay, ...]:
    """In the client; where the prompt is computed, if that is elsewhere; where it is answered."""
    sent_ms = _times(rows, lambda row: row.sent_ms)
    first_ms = _times(rows, lambda row: row.first_token_ms)
    end_ms = _times(rows, lambda row: row.end_ms)
    waits = Stage(IN_CLIENT, ".", _times(rows, lambda row: row.intended_ms), sent_ms)
    is_apart = np.array([row.prefill_replica is not None for row in rows], dtype=bool)
    prompt = Stage(TO_FIRST_TOKEN, "=", sent_ms, first_ms)
    decode = Stage(DECODE, "#", first_ms, _times(rows, _last_ms))
    cut = Stage(CUT_SHORT, "x", np.where(np.isnan(first_ms), sent_ms, first_ms), end_ms)
    is_cut = np.array([row.status != OK for row in rows], dtype=bool)
    there = np.array([_place(row.replica, row, number) for row in rows], dtype=np.int64)
    here = np.array([_place(row.prefill_replica, row, number) for row in rows], dtype=np.int64)
    return (
        Stay(np.full(len(rows), ROUTER), (waits,), runs=False),
        Stay(np.where(is_apart, here, NOWHERE), (prompt.only(is_apart),), runs=True),
        Stay(there, (prompt.only(~is_apart), decode.only(~is_cut), cut.only(is_cut)), runs=True),
    )


def _last_ms(row: Row) -> float | None:
    return row.end_ms if row.last_token_ms is None else row.last_token_ms


def _place(name: str | None, row: Row, number: dict[str, int]) -> int:
    if row.sent_ms is None:
        return NOWHERE
    return number[TARGET] if name is None and TARGET in number else number.get(name or "", NOWHERE)


def _reasons(rows: Sequence[Row], number: dict[str, int]) -> Instants:
    """The router's, as it told them: when the request was sent to it."""
    names = tuple(sorted({row.reason for row in rows if row.reason is not None}))
    code = [names.index(row.reason) if row.reason is not None else -1 for row in rows]
    at_ms = _times(rows, lambda row: row.sent_ms if row.reason is not None else None)
    replica = [NOWHERE if row.replica is None else number[row.replica] for row in rows]
    places: tuple[tuple[str, Places], ...] = (("replica", np.array(replica, dtype=np.int64)),)
    return Instants(names, np.array(code, dtype=np.int64), at_ms, places)


def _failures(rows: Sequence[Row]) -> Instants:
    """How those ended that did not end well; those never sent when they were due."""
    code = np.array([STATUSES.index(row.status) for row in rows], dtype=np.int64)
    at_ms = _times(rows, lambda row: None if row.status == OK else row.end_ms or row.intended_ms)
    return Instants(STATUSES, code, at_ms)


def _times(rows: Sequence[Row], of: Callable[[Row], float | None]) -> Floats:
    return np.array([np.nan if of(row) is None else of(row) for row in rows], dtype=np.float64)


def _integers(rows: Sequence[Row], of: Callable[[Row], int | None]) -> Places:
    return np.array([-1 if of(row) is None else of(row) for row in rows], dtype=np.int64)
