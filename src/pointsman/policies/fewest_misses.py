"""Where a request causes the fewest expected misses of the objectives, its own and others'."""

from __future__ import annotations

import math

import numpy as np

from pointsman.core.compiled import inlined
from pointsman.policies.in_flight import LONGEST_OUTPUT, NONE, InFlight
from pointsman.policies.policy import (
    FULL_WORK_MS,
    ITERATION_MS,
    WORK_MS,
    Parameters,
    Request,
    View,
    policy,
)
from pointsman.policies.waits import wait_ms

TTFT_MS = 0
TPOT_MS = 1

# Ratios to the objectives, from a region where none of them matters much (docs/policies.md).
SOFTNESS = 0.1  # of the TTFT objective: the width of the step from met to missed
WORK_PRICE = 9.0  # a ms of own prefill in ms of others' waiting
PRICE_SHARE = 3.0  # so many TTFT objectives of work weigh as much as one miss

# Beyond the objective, the most that a first token comes later than the earliest one could: what
# is late already would else be late for ever. A promise, not a fitted number.
MOST_LATER = 1.5

# Where a longer wait of a request is certain to end it late, further ones behind it need no look.
CERTAIN = 0.999


@inlined
def ended_by(in_flight: InFlight, tokens: float) -> float:
    """The fraction of answers so far that had at most so many tokens."""
    if tokens <= 0.0:
        return 0.0
    if tokens >= LONGEST_OUTPUT:
        return 1.0
    return in_flight.ended_by[int(tokens)]  # type: ignore[no-any-return]


@inlined
def own_miss(first_token_ms: float, ttft_ms: float) -> float:
    """The chance to be late: a soft step at the objective."""
    late = (first_token_ms - ttft_ms) / ttft_ms
    return 1.0 / (1.0 + math.exp(-max(-50.0, min(50.0, late / SOFTNESS))))


@inlined
def decoding_misses(  # noqa: PLR0913 - plain numbers, for it is the hot loop
    in_flight: InFlight,
    r: int,
    now_ms: float,
    stall_ms: float,
    more_ms: float,
    tpot: tuple[float, float],
) -> float:
    """Expected further TPOT misses of those that decode on r, where the prefill ahead of them
    grows from ``stall_ms`` by ``more_ms``.

    One that has g tokens after t ms meets its objective P, at i ms an iteration, if its answer is
    longer than (t + stall + P - g i) / (P - i) tokens.
    """
    objective_ms, iteration_ms = tpot
    account = in_flight.accounts[r]
    spare_ms = objective_ms - iteration_ms
    if spare_ms <= 0.0:
        return 0.0
    misses = 0.0
    for k in range(account.counts):
        flight = in_flight.flights[in_flight.running[r, k]]
        if flight.first_token_ms <= now_ms:
            tokens = float(flight.tokens_out + account.steps)
            age_ms = now_ms - flight.first_token_ms
            needed = (age_ms + stall_ms + objective_ms - tokens * iteration_ms) / spare_ms
            after = ended_by(in_flight, max(needed + more_ms / spare_ms, tokens))
            before = ended_by(in_flight, max(needed, tokens))
            left = 1.0 - ended_by(in_flight, tokens)
            if left > 0.0:
                misses += (after - before) / left
    return misses


@inlined
def waiting_misses(in_flight: InFlight, r: int, more_ms: float, tpot: tuple[float, float]) -> float:
    """The same of those that wait on r: the prefills behind each of them stall its answer."""
    objective_ms, iteration_ms = tpot
    spare_ms = objective_ms - iteration_ms
    if spare_ms <= 0.0:
        return 0.0
    misses = 0.0
    behind_ms = 0.0
    i = in_flight.accounts[r].newest
    while i != NONE:
        before = ended_by(in_flight, (behind_ms + spare_ms) / spare_ms)
        if before > CERTAIN:
            break
        misses += ended_by(in_flight, (behind_ms + more_ms + spare_ms) / spare_ms) - before
        behind_ms += in_flight.flights[i].work_ms
        i = in_flight.flights[i].older
    return misses


@policy(
    rule=(
        "The replica where the request causes the fewest expected misses of the TTFT and TPOT"
        " objectives, its own and those it inflicts, plus a price on the work it adds."
    ),
    source="ours (docs/policies.md)",
    reasons=("fewest_misses",),
    parameters={"ttft_ms": 3000.0, "tpot_ms": 60.0},
    reads=("queue", "prefix", "work", "decode", "in_flight"),
)
def fewest_misses(
    request: Request, view: View, parameters: Parameters, in_flight: InFlight
) -> tuple[int, int]:
    """Take the least sum of misses and work."""
    ttft_ms = parameters[TTFT_MS]
    best = 0
    least = np.inf
    mean, earliest = 0.0, np.inf
    for c in range(view.shape[1]):
        mean += view[FULL_WORK_MS, c]
        earliest = min(earliest, wait_ms(request, view, c) + view[WORK_MS, c])
    mean /= view.shape[1]
    latest = max(ttft_ms, MOST_LATER * earliest)
    for c in range(view.shape[1]):
        r = int(in_flight.replica_of[c, 0])
        wait = wait_ms(request, view, c)
        work = view[WORK_MS, c]
        if wait + work > latest:
            continue
        tpot = (parameters[TPOT_MS], view[ITERATION_MS, c])
        misses = own_miss(wait + work, ttft_ms)
        # Work in replicas of mean speed; 0 where prompts cost nothing.
        full = view[FULL_WORK_MS, c]
        added = WORK_PRICE * work * mean / full if full > 0.0 else 0.0
        price = (wait + added + view[ITERATION_MS, c]) / (PRICE_SHARE * ttft_ms)
        if misses + price < least:
            misses += decoding_misses(in_flight, r, request.now_ms, wait, work, tpot)
            misses += waiting_misses(in_flight, r, work, tpot)
            if misses + price < least:
                least = misses + price
                best = c
    return best, 0
