"""What the router's log says of each request: when it was sent where, and what came back when.

    arrived ── waited ── chosen ── [prefilled ── handed off | fell back] ── first token

Times are ms of the router's clock, which is not the client's: only durations are joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from pointsman.core.errors import InputError
from pointsman.dispatch.log_file import Log, read_log
from pointsman.dispatch.record import Choice, FellBack, HandedOff, Prefilled


@dataclass(slots=True)
class _HandOff:
    """The lines between a choice and its outcome."""

    prefilled: Prefilled | None = None
    handed_off: HandedOff | None = None
    fell_back: FellBack | None = None


@dataclass(frozen=True, slots=True)
class Routed:
    """One request, of its last try where there were several; None is unknown, or did not happen."""

    replica: str  # which answered, by its URL
    prefill_replica: str | None
    reason: str
    attempts: int
    waited_ms: float  # in the router, for whatever, before it was sent
    chosen_ms: float
    first_token_ms: float | None
    prefilled_ms: float | None = None
    engine_prefill_ms: float | None = None  # as the prefill replica told
    handed_off_ms: float | None = None
    handoff_ms: float | None = None  # as the log has it: measured, or what the first token leaves
    handoff_bytes: int | None = None
    fell_back: str | None = None  # why there was no hand-off


def read_routed(paths: Sequence[Path]) -> dict[str, Routed]:
    """What the log in these files says, by request id. Raises InputError as ``read_log`` does, and
    for ids that come again: a load that is to be told from another has a name of its own."""
    log = read_log(*paths)
    between = _between(log)
    routed: dict[str, Routed] = {}
    for choice in log.choices:
        before = routed.get(choice.request_id)
        if before is not None and choice.attempt <= before.attempts:
            raise InputError(
                f"{log.path}: request {choice.request_id} came twice; expected each id once: give"
                " each load a name of its own"
            )
        lines = between.get(choice.sequence, _HandOff())
        routed[choice.request_id] = _routed(log, choice, lines)
    return routed


def _between(log: Log) -> dict[int, _HandOff]:
    found: dict[int, _HandOff] = {}
    for event in log.events:
        if isinstance(event, Prefilled):
            found.setdefault(event.sequence, _HandOff()).prefilled = event
        elif isinstance(event, HandedOff):
            found.setdefault(event.sequence, _HandOff()).handed_off = event
        elif isinstance(event, FellBack):
            found.setdefault(event.sequence, _HandOff()).fell_back = event
    return found


def _routed(log: Log, choice: Choice, lines: _HandOff) -> Routed:
    computes, decodes = choice.replica, None
    if not isinstance(choice.pair, msgspec.UnsetType):
        computes, decodes = choice.pair
    outcome = log.outcomes.get(choice.sequence)
    prefilled, handed_off, fell_back = lines.prefilled, lines.handed_off, lines.fell_back
    return Routed(
        replica=log.replicas[computes if decodes is None else decodes],
        prefill_replica=None if decodes is None else log.replicas[computes],
        reason=choice.reason,
        attempts=choice.attempt,
        waited_ms=choice.waited_ms,
        chosen_ms=choice.time_ms,
        first_token_ms=None if outcome is None else outcome.first_token_ms,
        prefilled_ms=None if prefilled is None else prefilled.time_ms,
        engine_prefill_ms=None if prefilled is None else prefilled.engine_ms,
        handed_off_ms=None if handed_off is None else handed_off.time_ms,
        handoff_ms=None if handed_off is None else handed_off.took_ms,
        handoff_bytes=None if handed_off is None else handed_off.bytes,
        fell_back=None if fell_back is None else fell_back.cause,
    )
