"""What the router shows a policy: the candidates of a request, and the rows of its view."""

from __future__ import annotations

from typing import Any

import numpy as np

from pointsman.core.compiled import inner, inner_inlined
from pointsman.dispatch.accounts import mean_work_ms, pending_wait_ms
from pointsman.policies.policy import (
    CANDIDATE,
    CONTEXT_TOKENS,
    FREE_AT_MS,
    FULL_WORK_MS,
    ITERATION_MS,
    KV_USE,
    PENDING_TOKENS,
    REQUESTS,
    RUNNING_REQUESTS,
    WAITING_REQUESTS,
    WORK_MS,
)
from pointsman.sim.batching_state import NONE, Fleet
from pointsman.sim.handoff import expected_transfer_ms, transfer_tokens
from pointsman.sim.routers import list_own_running, note_others, own_transfers
from pointsman.sim.seats import blocks_for
from pointsman.sim.stretch import iterations_done, sync_stretch
from pointsman.sim.timeline import sample_until
from pointsman.sim.traffic import Traffic

# While no answer has ended, answers are taken to be this long: one KV block of vLLM's.
FIRST_GUESS_TOKENS = 16.0


@inner_inlined
def _fits(fleet: Fleet, r: int, tokens: int) -> bool:
    engine = fleet.engines[r]
    return (  # type: ignore[no-any-return]
        blocks_for(tokens, engine.block_size) <= fleet.replicas[r].capacity
        and tokens < engine.max_model_len
    )


@inner_inlined
def _could_serve(fleet: Fleet, i: int, prefill: int, decode: int) -> bool:
    """Whether the candidate can ever hold the request, should it live."""
    prompt = fleet.questions[i].prompt_tokens
    if decode == NONE:
        return _fits(fleet, prefill, prompt + fleet.questions[i].output_tokens - 1)
    answers = fleet.questions[fleet.questions[i].decode_row]
    return _fits(fleet, prefill, prompt) and _fits(
        fleet, decode, prompt + answers.output_tokens - 1
    )


@inner_inlined
def _lives(fleet: Fleet, prefill: int, decode: int) -> bool:
    return fleet.replicas[prefill].alive == 1 and (
        decode == NONE or fleet.replicas[decode].alive == 1
    )


@inner
def list_candidates(fleet: Fleet, traffic: Traffic, i: int) -> int:
    """Write the candidates that can serve the request into ``replica_of``; how many they are.

    Their replicas as rows of the accounts of the router that chooses.
    """
    columns, listed = traffic.columns, fleet.in_flight.replica_of
    count = 0
    for c in range(columns.shape[0]):
        prefill, decode = columns[c, 0], columns[c, 1]
        if _lives(fleet, prefill, decode) and _could_serve(fleet, i, prefill, decode):
            listed[count, 0] = fleet.knowledge.clock[0].own + columns[c, 0]
            listed[count, 1] = columns[c, 1]
            listed[count, 2] = columns[c, 2]
            count += 1
    return count


@inner
def fits_nobody(fleet: Fleet, traffic: Traffic, i: int) -> bool:
    """Whether no candidate can ever hold the request, whoever lives."""
    for c in range(traffic.columns.shape[0]):
        if _could_serve(fleet, i, traffic.columns[c, 0], traffic.columns[c, 1]):
            return False
    return True


@inner_inlined
def work_ms(fleet: Fleet, r: int, i: int, cached_tokens: float) -> float:
    """What the prompt's uncached rest nominally takes there, by itself: that a replica has become
    slow no router is told."""
    engine, prompt = fleet.engines[r], fleet.questions[i].prompt_tokens
    uncached = prompt - cached_tokens
    attention = uncached * (prompt - 0.5 * uncached)
    total_ms = engine.per_prefill_token_ms * uncached + engine.per_attention_ms * attention
    return total_ms / fleet.replicas[r].slowness  # type: ignore[no-any-return]


@inner_inlined
def _account_of(fleet: Fleet, r: int) -> Any:
    """What the router that chooses counts there."""
    return fleet.in_flight.accounts[fleet.knowledge.clock[0].own + r]


@inner_inlined
def _sight_of(fleet: Fleet, r: int) -> Any:
    """What it takes for others' there."""
    return fleet.knowledge.sights[fleet.knowledge.clock[0].own + r]


@inner_inlined
def _decodes_of(fleet: Fleet, r: int) -> int:
    """Its requests in the iterations under way."""
    if fleet.knowledge.clock[0].routers == 1:
        return fleet.replicas[r].decodes  # type: ignore[no-any-return]
    return _sight_of(fleet, r).decodes  # type: ignore[no-any-return]


@inner_inlined
def _note_steps_of(fleet: Fleet, r: int, now_ms: float) -> None:
    account, clock = _account_of(fleet, r), fleet.knowledge.clock[0]
    account.counts = fleet.replicas[r].running
    account.steps = 0
    if clock.routers > 1:
        list_own_running(fleet, clock.own + r, r)
    if fleet.replicas[r].decodes > 0:
        account.steps = iterations_done(fleet, r, now_ms)


@inner
def note_steps(fleet: Fleet, now_ms: float) -> None:
    """Bring the tokens that have come back since the last event up to date."""
    for r in range(fleet.replicas.shape[0]):
        _note_steps_of(fleet, r, now_ms)


@inner_inlined
def context_tokens(fleet: Fleet, r: int) -> float:
    """Tokens of all requests there."""
    account = _account_of(fleet, r)
    return account.context_tokens + account.steps * _decodes_of(fleet, r)  # type: ignore[no-any-return]


@inner_inlined
def _requests_at(fleet: Fleet, r: int) -> float:
    requests = _account_of(fleet, r).requests
    if fleet.knowledge.clock[0].routers > 1:
        sight = _sight_of(fleet, r)
        requests += sight.waiting + sight.running
    return requests  # type: ignore[no-any-return]


@inner_inlined
def _decoding_at(fleet: Fleet, r: int) -> float:
    decoding = _account_of(fleet, r).decoding
    if fleet.knowledge.clock[0].routers > 1:
        decoding += _sight_of(fleet, r).running
    return decoding  # type: ignore[no-any-return]


@inner_inlined
def iteration_ms(fleet: Fleet, r: int) -> float:
    """What an iteration of all that decode there nominally takes."""
    engine, account = fleet.engines[r], _account_of(fleet, r)
    tokens = account.decoding_tokens + account.steps * _decodes_of(fleet, r)
    total_ms = (
        engine.per_iteration_ms
        + engine.per_decode_ms * _decoding_at(fleet, r)
        + engine.per_kv_token_ms * tokens
    )
    return total_ms / fleet.replicas[r].slowness  # type: ignore[no-any-return]


@inner_inlined
def expected_output(fleet: Fleet) -> float:
    """Tokens of an answer to come: the mean of those that ended."""
    finished = fleet.in_flight.finished
    return finished[2] / finished[0] if finished[0] > 0 else FIRST_GUESS_TOKENS


@inner_inlined
def ending_ms(fleet: Fleet, r: int, requests: float) -> float:
    """How long until so many have ended that decode there: (those that decode) / (answer length x
    iteration) end in a millisecond."""
    decoding = max(1.0, _decoding_at(fleet, r))
    return requests * expected_output(fleet) * iteration_ms(fleet, r) / decoding


@inner_inlined
def wait_ms(fleet: Fleet, traffic: Traffic, r: int, now_ms: float) -> float:
    """Expected wait on the replica of a request sent there now: for the prefill of those before it,
    or, where it is to decode there too, for a seat."""
    return _wait_behind_ms(fleet, traffic, r, now_ms, (0.0, 0.0))


@inner_inlined
def _wait_behind_ms(
    fleet: Fleet, traffic: Traffic, r: int, now_ms: float, others: tuple[float, float]
) -> float:
    """The same, behind others too that are not in flight from here: their prefill in ms, and how
    many they are."""
    own = fleet.knowledge.clock[0].own
    pending_ms = pending_wait_ms(fleet.in_flight, own + r, now_ms) + others[0]
    requests = _account_of(fleet, r).requests + others[1]
    lacking = requests + 1.0 - fleet.engines[r].max_num_seqs
    if lacking <= 0.0 or traffic.columns[0, 1] != NONE:
        return pending_ms
    _note_steps_of(fleet, r, now_ms)
    return max(pending_ms, ending_ms(fleet, r, lacking))


@inner_inlined
def _others_there(fleet: Fleet, traffic: Traffic, r: int, i: int, held: int) -> tuple[float, float]:
    """Prefill and number of those ``held`` for the replica (all of them, or 0) and of other
    routers' requests there; those that wait are taken to be like those sent so far, on the mean."""
    waiting_ms, count = 0.0, float(held)
    if held > 0:
        waiting_ms = traffic.awaited[r].work_ms
    if fleet.knowledge.clock[0].routers > 1:
        sight = _sight_of(fleet, r)
        waiting_ms += sight.waiting * mean_work_ms(fleet.in_flight, work_ms(fleet, r, i, 0.0))
        count += sight.waiting + sight.running
    return waiting_ms, count


@inner_inlined
def needs_of(fleet: Fleet, traffic: Traffic, r: int, i: int) -> tuple[float, float, int]:
    """What the request brings there: its prefill in ms, its uncached tokens, its prompt."""
    prompt = fleet.questions[i].prompt_tokens
    return work_ms(fleet, r, i, traffic.cached[r]), prompt - traffic.cached[r], prompt


@inner
def decode_wait_ms(fleet: Fleet, r: int, i: int) -> float:
    """Expected wait for a seat and blocks on a decode replica, from what was sent there: until as
    many have ended as lack seats or tokens."""
    engine, account = fleet.engines[r], _account_of(fleet, r)
    answer = expected_output(fleet)
    tokens = context_tokens(fleet, r) + fleet.questions[i].prompt_tokens + answer
    room = fleet.replicas[r].capacity * engine.block_size
    lacking = _requests_at(fleet, r) + 1.0 - engine.max_num_seqs
    if tokens > room:
        mean_tokens = context_tokens(fleet, r) / max(1.0, account.requests)
        lacking = max(lacking, (tokens - room) / max(1.0, mean_tokens))
    if lacking <= 0.0:
        return 0.0
    return ending_ms(fleet, r, lacking)


@inner_inlined
def pair_wait_ms(  # noqa: PLR0913 - plain numbers
    fleet: Fleet, traffic: Traffic, i: int, pair: Any, now_ms: float, held: int
) -> float:
    """Prefill wait, hand-off, decode wait and the iteration that brings the first token."""
    prefill, decode = pair[0], pair[1]
    size = fleet.engines[0].block_size
    blocks = int(traffic.cached[decode]) // size
    tokens = transfer_tokens(fleet, i, blocks, size)
    handoff_ms = expected_transfer_ms(fleet, tokens, own_transfers(fleet))
    others = _others_there(fleet, traffic, prefill, i, held)
    return (
        _wait_behind_ms(fleet, traffic, prefill, now_ms, others)
        + handoff_ms
        + decode_wait_ms(fleet, decode, i)
        + iteration_ms(fleet, decode)
    )


@inner
def read_gauges(fleet: Fleet, r: int, now_ms: float) -> None:
    """Read the engine's gauges as they were at the last instant of reading that has come.

    Called before anything changes on the replica or takes the blocks of its stretch up to a later
    instant, so that what is there now was there then.
    """
    gauges, clock = fleet.knowledge.gauges[r], fleet.knowledge.clock[0]
    age_ms = clock.metrics_age_ms
    if now_ms < gauges.next_ms:
        return
    last_ms = now_ms
    if age_ms > 0.0:
        last_ms = gauges.next_ms + np.floor((now_ms - gauges.next_ms) / age_ms) * age_ms
        gauges.next_ms = last_ms + age_ms
    sample_until(fleet, r, last_ms)
    sync_stretch(fleet, r, last_ms)
    replica = fleet.replicas[r]
    gauges.waiting = replica.waiting
    gauges.running = replica.running + replica.receiving
    gauges.kv_use = (replica.capacity - replica.free) / replica.capacity
    if clock.routers > 1:
        note_others(fleet, r)


@inner
def fill_view(fleet: Fleet, traffic: Traffic, i: int, view: Any, now_ms: float) -> None:
    """All rows but the cached tokens, for the candidates listed.

    Held requests count where they wait to go; for one of them that is tried itself, those held for
    the same replica do not.
    """
    rules, listed = traffic.rules[0], fleet.in_flight.replica_of
    own = fleet.knowledge.clock[0].own
    for c in range(view.shape[1]):
        k, decode = int(listed[c, 0]) - own, int(listed[c, 1])
        account, gauges = _account_of(fleet, k), fleet.knowledge.gauges[k]
        answers = k if decode == NONE else decode
        awaited = traffic.awaited[k]
        held = 0 if k == rules.looking_at else awaited.requests
        if rules.queue == 1:
            if decode == NONE:
                others = _others_there(fleet, traffic, k, i, held)
                ahead_ms = _wait_behind_ms(fleet, traffic, k, now_ms, others)
                view[FREE_AT_MS, c] = now_ms + ahead_ms
            else:
                ahead_ms = pair_wait_ms(fleet, traffic, i, (k, decode), now_ms, held)
                view[FREE_AT_MS, c] = now_ms + ahead_ms
        view[CANDIDATE, c] = listed[c, 2]
        view[REQUESTS, c] = _requests_at(fleet, k) + held
        if decode != NONE:
            view[REQUESTS, c] += _requests_at(fleet, decode)
        view[WORK_MS, c] = work_ms(fleet, k, i, traffic.cached[k])
        view[FULL_WORK_MS, c] = work_ms(fleet, k, i, 0.0)
        view[PENDING_TOKENS, c] = account.pending_tokens
        if rules.engine == 1:
            view[WAITING_REQUESTS, c] = gauges.waiting
            view[RUNNING_REQUESTS, c] = gauges.running
            view[KV_USE, c] = gauges.kv_use
        if rules.steps == 1:
            view[CONTEXT_TOKENS, c] = context_tokens(fleet, answers)
            view[ITERATION_MS, c] = iteration_ms(fleet, answers)
        if held > 0:
            view[PENDING_TOKENS, c] += awaited.uncached_tokens
            view[CONTEXT_TOKENS, c] += awaited.prompt_tokens


@inner
def note_waits(traffic: Traffic, i: int, view: Any, chosen: int, now_ms: float) -> None:
    """Keep the wait expected at the candidate chosen, and the shortest of all."""
    best = 0
    for c in range(1, view.shape[1]):
        if max(now_ms, view[FREE_AT_MS, c]) < max(now_ms, view[FREE_AT_MS, best]):
            best = c
    traffic.waits[i, 0] = max(0.0, view[FREE_AT_MS, chosen] - now_ms)
    traffic.waits[i, 1] = max(0.0, view[FREE_AT_MS, best] - now_ms)
    traffic.waits[i, 2] = view[WORK_MS, best] - view[WORK_MS, chosen]
