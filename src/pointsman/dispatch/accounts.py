"""The router's own accounts of a replica, changed only by what it sent and what came back.

    sent -> first_token -> tokens ... -> ended

Compiled, for the simulator calls them at every event of every request.
"""

from __future__ import annotations

import numpy as np

from pointsman.core.compiled import inner, inner_inlined
from pointsman.policies.in_flight import LONGEST_OUTPUT, NONE, InFlight

US_A_MS = 1000.0


@inner_inlined
def count_sent(known: InFlight, r: int, i: int, prompt_tokens: int) -> None:
    """Request i, whose flight is filled in, is on its way to the replica."""
    account, flight = known.accounts[r], known.flights[i]
    account.requests += 1.0
    account.pending_ms += flight.work_ms
    account.pending_tokens += flight.uncached_tokens
    account.context_tokens += prompt_tokens
    flight.newer = NONE
    flight.older = account.newest
    if account.newest == NONE:
        account.oldest = i
    else:
        known.flights[account.newest].newer = i
    account.newest = i
    if flight.work_ms > 0.0:
        known.sent[0] += 1
        known.sent[1] += int(US_A_MS * flight.work_ms + 0.5)


@inner_inlined
def mean_work_ms(known: InFlight, otherwise_ms: float) -> float:
    """What the prefill of a request takes, cached parts left out: the mean of those sent."""
    sent = known.sent
    return sent[1] / (US_A_MS * sent[0]) if sent[0] > 0 else otherwise_ms


@inner_inlined
def _leave_pending(known: InFlight, r: int, i: int) -> None:
    account, flight = known.accounts[r], known.flights[i]
    if flight.older == NONE:
        account.oldest = flight.newer
    else:
        known.flights[flight.older].newer = flight.newer
    if flight.newer == NONE:
        account.newest = flight.older
    else:
        known.flights[flight.newer].older = flight.older
    if account.oldest == NONE:  # sums of doubles leave crumbs
        account.pending_ms = 0.0
        account.pending_tokens = 0.0
    else:
        account.pending_ms -= flight.work_ms
        account.pending_tokens -= flight.uncached_tokens


@inner_inlined
def count_first_token(known: InFlight, r: int, i: int, prompt_tokens: int, now_ms: float) -> None:
    """The request's first token came back."""
    account = known.accounts[r]
    known.flights[i].first_token_ms = now_ms
    _leave_pending(known, r, i)
    account.last_first_ms = now_ms
    account.decoding += 1.0
    account.decoding_tokens += prompt_tokens


@inner_inlined
def count_tokens(known: InFlight, r: int, i: int, tokens: int) -> None:
    """So many tokens came back."""
    known.flights[i].tokens_out += tokens
    known.accounts[r].context_tokens += tokens
    known.accounts[r].decoding_tokens += tokens


@inner_inlined
def count_ended(known: InFlight, r: int, i: int, prompt_tokens: int) -> None:
    """The request ended there, in whatever way."""
    account, flight = known.accounts[r], known.flights[i]
    tokens = prompt_tokens + flight.tokens_out
    account.requests -= 1.0
    account.context_tokens -= tokens
    if np.isnan(flight.first_token_ms):
        _leave_pending(known, r, i)
    else:
        account.decoding -= 1.0
        account.decoding_tokens -= tokens


@inner
def learn_output(known: InFlight, tokens: int) -> None:
    """An answer was so long. The distribution is brought up to date in steps that grow with it."""
    known.output_counts[min(tokens, LONGEST_OUTPUT)] += 1.0
    finished = known.finished
    finished[0] += 1
    finished[1] += 1
    finished[2] += tokens
    if 64 * finished[1] >= finished[0]:
        finished[1] = 0
        share = 1.0 / finished[0]
        total = 0.0
        for n in range(LONGEST_OUTPUT + 1):
            total += known.output_counts[n]
            known.ended_by[n] = total * share


@inner_inlined
def pending_wait_ms(known: InFlight, r: int, now_ms: float) -> float:
    """Work sent there without a first token, less what there was time to do of the oldest."""
    account = known.accounts[r]
    oldest = account.oldest
    if oldest == NONE:
        return 0.0
    flight = known.flights[oldest]
    done_ms = min(now_ms - max(account.last_first_ms, flight.sent_ms), flight.work_ms)
    return max(0.0, account.pending_ms - done_ms)  # type: ignore[no-any-return]


@inner_inlined
def wait_falls_ms(known: InFlight, r: int, limit_ms: float) -> float:
    """When the expected wait will have fallen to the limit by itself; inf: not without a first
    token from there."""
    account = known.accounts[r]
    oldest = account.oldest
    if oldest == NONE:
        return -np.inf
    flight = known.flights[oldest]
    excess_ms = account.pending_ms - limit_ms
    if excess_ms > flight.work_ms:
        return np.inf
    return max(account.last_first_ms, flight.sent_ms) + excess_ms  # type: ignore[no-any-return]
