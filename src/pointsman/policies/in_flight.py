"""The requests in flight, for rules that price what they inflict on others.

A policy that lists ``in_flight`` among its ``reads`` takes a fourth argument:

    choose(request, view, parameters, in_flight)

    r = in_flight.replica_of[c, 0]            the replica of candidate c; of a pair, its prefill
    in_flight.running[r, 0 .. counts[r])          rows of those that its engine runs
    in_flight.accounts[r].newest -> flights[i].older -> ... -> -1     those without a first token
    in_flight.flights[i]                          one request, as the router knows it

All of it is what a router sees by itself: what it sent where and when, and the tokens that came
back through it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
from numba import types
from numpy.typing import NDArray

NONE = -1

FLIGHT = np.dtype(
    [
        ("sent_ms", np.float64),
        ("first_token_ms", np.float64),  # NaN until it comes
        ("work_ms", np.float64),  # what its prompt was expected to take
        ("uncached_tokens", np.int32),  # of the prompt, as expected when it was sent
        ("tokens_out", np.int32),  # but for the last `steps` of its replica
        ("older", np.int32),  # the one sent there before it that had no first token then
        ("newer", np.int32),
    ],
    align=True,
)

ACCOUNT = np.dtype(  # of one replica
    [
        ("requests", np.float64),  # sent there and not ended
        ("pending_ms", np.float64),  # the work of those without a first token
        ("pending_tokens", np.float64),  # their uncached tokens
        ("context_tokens", np.float64),  # prompt and answer so far, of all in flight
        ("decoding", np.float64),  # those with a first token
        ("decoding_tokens", np.float64),  # their prompts and answers so far
        ("last_first_ms", np.float64),  # when a first token came last
        ("oldest", np.int32),  # of those without a first token
        ("newest", np.int32),
        ("counts", np.int32),  # how many the engine runs
        ("steps", np.int32),  # tokens that each of them got beyond its `tokens_out`
    ],
    align=True,
)

# Answers of this many tokens or more count as this long.
LONGEST_OUTPUT = 1 << 14


class InFlight(NamedTuple):
    """What a router knows of the requests that it sent and that have not ended.

    ``ended_by[n]``: the fraction of the answers finished so far that had at most n tokens; 0
    everywhere while there is none. Their lengths are the only thing known of the answers to come.
    """

    flights: NDArray[Any]
    accounts: NDArray[Any]
    running: NDArray[np.int32]
    replica_of: NDArray[np.int32]  # (candidates, 3): replica, of a pair its decode, its number
    ended_by: NDArray[np.float64]
    output_counts: NDArray[np.float64]
    finished: NDArray[np.int64]  # answers, those that ended_by lacks yet, tokens of all
    sent: NDArray[np.int64]  # requests with a prefill of their own, and us that those take in all


FLIGHTS_TYPE = types.Array(numba.from_dtype(FLIGHT), 1, "C")
ACCOUNTS_TYPE = types.Array(numba.from_dtype(ACCOUNT), 1, "C")
IN_FLIGHT_TYPE = types.NamedTuple(
    (
        FLIGHTS_TYPE,
        ACCOUNTS_TYPE,
        types.Array(types.int32, 2, "C"),
        types.Array(types.int32, 2, "C"),
        types.Array(types.float64, 1, "C"),
        types.Array(types.float64, 1, "C"),
        types.Array(types.int64, 1, "C"),
        types.Array(types.int64, 1, "C"),
    ),
    InFlight,
)


def idle_in_flight(
    flights: NDArray[Any], running: NDArray[np.int32], columns: int | None = None
) -> InFlight:
    """Nothing in flight on ``running.shape[0]`` replicas, each one a candidate by itself."""
    count = running.shape[0]
    accounts = np.zeros(count, dtype=ACCOUNT)
    accounts["last_first_ms"] = -np.inf
    accounts["oldest"] = accounts["newest"] = NONE
    replica_of = np.full((columns or count, 3), NONE, dtype=np.int32)
    return InFlight(
        flights=flights,
        accounts=accounts,
        running=running,
        replica_of=replica_of,
        ended_by=np.zeros(LONGEST_OUTPUT + 1, dtype=np.float64),
        output_counts=np.zeros(LONGEST_OUTPUT + 1, dtype=np.float64),
        finished=np.zeros(3, dtype=np.int64),
        sent=np.zeros(2, dtype=np.int64),
    )
