"""One choice, compiled whole: who holds the prompt, the view, and what the policy says of it.

What it works on it finds by address (core/handles.py) on a *desk*, one array of integers:

    the router's accounts (live_kernels.py)    the index of prefixes (prefix_table.py)
    room for the numbers of blocks             the view, and what the policy is shown of it
    the request as the policy gets it          the policy's parameters
    the policy's address                       a bit for each row that it is shown
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numpy.typing import NDArray

from pointsman.core.compiled import kernel
from pointsman.core.handles import HANDLE_TYPE, Handle, array_at, function_at, handle_of
from pointsman.dispatch.homes import NOWHERE
from pointsman.dispatch.live_kernels import IDS_TYPE, LIVE_WORDS, live_at
from pointsman.dispatch.pair_kernels import fill_all_views
from pointsman.dispatch.prefix_table import TABLE_WORDS, fill_held, table_at
from pointsman.policies.policy import (
    CACHED_TOKENS,
    FREE_AT_MS,
    IN_FLIGHT,
    PARAMETERS_TYPE,
    REQUEST_TYPE,
    VIEW_TYPE,
    WORK_MS,
    signature_for,
)

_HASHES_TYPE = types.Array(types.uint64, 1, "C")
_NUMBERS, _PARAMETERS = array_at(_HASHES_TYPE), array_at(PARAMETERS_TYPE)
_VIEW, _REQUESTS = array_at(VIEW_TYPE), array_at(types.Array(REQUEST_TYPE, 1, "C"))

# Where on a desk what follows the accounts begins.
_TABLE = LIVE_WORDS
_ROOM = _TABLE + TABLE_WORDS
_VIEWS = _ROOM + 2
_REQUEST = _VIEWS + 6
_VALUES = _REQUEST + 2
_POLICY = _VALUES + 2
_SHOWN = _POLICY + 1

_LOOKED = types.Tuple((types.int64, types.int64, *[types.float64] * 3))


def desk_of(
    parts: tuple[Handle, Handle], arrays: tuple[NDArray[Any], ...], policy: tuple[int, int]
) -> Handle:
    """The handles of the accounts and the index; numbers, view, shown, request and parameters; the
    policy's address, and the rows that it is shown. All of it is to be kept alive."""
    desk = np.concatenate([*parts, handle_of(arrays), np.array(policy, dtype=np.int64)])
    assert len(desk) == _SHOWN + 1
    return desk


# Not in the closure of what is compiled: Numba tells these apart by a number that each process
# draws, and no later process would find the code.
_policy_at = function_at(signature_for(frozenset()))
_policy_of_all_at = function_at(signature_for(frozenset((IN_FLIGHT,))))


def _kernel(*, reads_in_flight: bool) -> Any:
    @kernel(
        _LOOKED(
            HANDLE_TYPE,
            _HASHES_TYPE,
            IDS_TYPE,
            types.UniTuple(types.int64, 6),
            types.UniTuple(types.float64, 2),
        )
    )
    def look(
        desk: Any,
        chain: Any,
        candidates: Any,
        counts: tuple[int, int, int, int, int, int],
        numbers: tuple[float, float],
    ) -> tuple[int, int, float, float, float]:
        """A candidate and an index into the policy's reasons, unchecked; the wait and the work
        there, and tokens of the prompt that it holds.

        ``counts``: tokens of the prompt, or -1; those it is priced as; tokens a block; how many
        were routed; the session's home, or NOWHERE; the request's key. ``numbers``: the instant,
        the draw.
        """
        prompt_tokens, priced, block_tokens, sequence, home, key = counts
        now_ms, draw = numbers
        live, table = live_at(desk), table_at(desk[_TABLE:_ROOM])
        view = _VIEW(desk[_VIEWS], (desk[_VIEWS + 1], desk[_VIEWS + 2]))
        shown = _VIEW(desk[_VIEWS + 3], (desk[_VIEWS + 4], desk[_VIEWS + 5]))
        room = _NUMBERS(desk[_ROOM], (desk[_ROOM + 1],))
        fill_held(table, chain, room, block_tokens, live.cached)
        longest = fill_all_views(live, (priced, desk[_SHOWN]), candidates, now_ms, (view, shown))
        request = _REQUESTS(desk[_REQUEST], (desk[_REQUEST + 1],))[0]
        request.now_ms, request.prompt_tokens, request.sequence = now_ms, prompt_tokens, sequence
        request.random, request.key = draw, key
        request.home = NOWHERE
        for c in range(candidates.shape[0]):
            if candidates[c] == home:
                request.home = c
        request.longest_hit_tokens = longest if (desk[_SHOWN] >> CACHED_TOKENS) & 1 else 0.0
        parameters = _PARAMETERS(desk[_VALUES], (desk[_VALUES + 1],))
        if reads_in_flight:
            choose_of_all = _policy_of_all_at(desk[_POLICY])
            c, reason = choose_of_all(request, shown, parameters, live.in_flight)
        else:
            choose = _policy_at(desk[_POLICY])
            c, reason = choose(request, shown, parameters)
        if c < 0 or c >= candidates.shape[0]:
            return c, reason, 0.0, 0.0, 0.0
        wait_ms = max(0.0, view[FREE_AT_MS, c] - now_ms)
        return c, reason, wait_ms, view[WORK_MS, c], view[CACHED_TOKENS, c]

    return look


look = _kernel(reads_in_flight=False)
look_at_all = _kernel(reads_in_flight=True)  # for policies that read what is in flight
