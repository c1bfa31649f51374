"""A stretch of iterations under way on a replica, and what it has done when it ends.

stretch_length      how many iterations may be taken as one
sync_stretch        the blocks taken and filled so far, for whoever looks in between
cut_stretch         end early, for somebody who may be admitted
finish_stretch      what was computed, generated and finished
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pointsman.core.compiled import inner, inner_inlined
from pointsman.dispatch.accounts import count_ended, count_first_token, count_tokens, learn_output
from pointsman.metrics.intertoken import gap_bin, gap_bin_end_ms
from pointsman.sim.batching_state import FINISHED, HANDED_OVER, NONE, Fleet
from pointsman.sim.handoff import send_to_decode
from pointsman.sim.knowledge import expect_no_more
from pointsman.sim.routers import forget_steps, own_row
from pointsman.sim.seats import blocks_for, blocks_lacking, free_seat, hold_blocks, name_blocks


@inner_inlined
def stretch_ms(base_ms: float, growth_ms: float, iterations: int) -> float:
    """How long so many iterations take, the first one ``base_ms``, each ``growth_ms`` more."""
    return iterations * base_ms + growth_ms * (0.5 * iterations * (iterations - 1))


@inner_inlined
def iterations_done(fleet: Fleet, r: int, now_ms: float) -> int:
    """How many iterations of the stretch have ended by now; fewer than its length."""
    replica = fleet.replicas[r]
    start_ms, base_ms, growth_ms = replica.start_ms, replica.base_ms, replica.growth_ms
    elapsed_ms = now_ms - start_ms
    if replica.length <= 1 or elapsed_ms <= 0.0 or base_ms <= 0.0:
        return 0
    # growth/2 m^2 + (base - growth/2) m = elapsed; then rounding is mended by looking.
    linear = base_ms - 0.5 * growth_ms
    root = np.sqrt(linear * linear + 2.0 * growth_ms * elapsed_ms)
    done = min(np.int64(2.0 * elapsed_ms / (linear + root)), replica.length - 1)
    while done < replica.length - 1 and (
        start_ms + stretch_ms(base_ms, growth_ms, done + 1) <= now_ms
    ):
        done += 1
    while done > 0 and start_ms + stretch_ms(base_ms, growth_ms, done) > now_ms:
        done -= 1
    return done  # type: ignore[no-any-return]


@inner
def stretch_length(fleet: Fleet, r: int) -> Any:
    """Iterations until a request finishes or fills a block that has an id, or while there are
    blocks."""
    size = fleet.engines[r].block_size
    most = np.int64(1) << 40
    for place in range(fleet.replicas[r].running):
        i = fleet.order[r, place]
        question, request = fleet.questions[i], fleet.progress[i]
        most = min(most, np.int64(question.output_tokens - fleet.flights[i].tokens_out))
        if question.known_blocks > request.computed // size:
            most = min(most, np.int64(size - request.computed % size))
    free = fleet.replicas[r].free
    if blocks_lacking(fleet, r, most) <= free:
        return most
    enough, too_many = np.int64(1), most
    while too_many - enough > 1:
        middle = (enough + too_many) // 2
        if blocks_lacking(fleet, r, middle) <= free:
            enough = middle
        else:
            too_many = middle
    return enough


@inner
def sync_stretch(fleet: Fleet, r: int, now_ms: float) -> None:
    """Take the blocks of the stretch as far as it has come; none of them has an id yet."""
    done = iterations_done(fleet, r, now_ms)
    if done > 0:
        _take_blocks_of_stretch(fleet, r, done + 1)


@inner
def _take_blocks_of_stretch(fleet: Fleet, r: int, started: int) -> None:
    """The blocks for the first so many iterations of the stretch."""
    size = fleet.engines[r].block_size
    for place in range(fleet.replicas[r].running):
        i = fleet.order[r, place]
        if fleet.progress[i].chunk > 0:
            tokens = fleet.progress[i].computed + fleet.progress[i].chunk + started - 1
            hold_blocks(fleet, r, i, blocks_for(tokens, size))


@inner
def cut_stretch(fleet: Fleet, r: int, now_ms: float, further: int) -> None:
    """End the stretch with the iteration that runs; where it began before now, so many further
    ones."""
    replica = fleet.replicas[r]
    done = iterations_done(fleet, r, now_ms)
    began_ms = replica.start_ms + stretch_ms(replica.base_ms, replica.growth_ms, done)
    length = done + 1 + (further if began_ms < now_ms else 0)
    if length < replica.length:
        replica.length = length
        elapsed_ms = stretch_ms(replica.base_ms, replica.growth_ms, length)
        replica.end_ms = replica.start_ms + elapsed_ms


@inner
def finish_stretch(fleet: Fleet, r: int) -> None:
    """What the iterations that end now computed and generated, and who is finished."""
    replica, known = fleet.replicas[r], fleet.in_flight
    size = fleet.engines[r].block_size
    now_ms = replica.end_ms
    repeats = int(replica.length - 1)  # beyond the first iteration, of one token each
    if repeats > 0:
        _take_blocks_of_stretch(fleet, r, replica.length)
    _count_work(fleet, r)
    known.accounts[r].steps = 0
    if fleet.knowledge.clock[0].routers > 1:
        forget_steps(fleet, r)
    first_ms = replica.start_ms + replica.base_ms  # the end of the first iteration
    steady = 0  # those whose last token came when it began
    kept = 0
    for place in range(replica.running):
        i = fleet.order[r, place]
        request, flight = fleet.progress[i], fleet.flights[i]
        question, own = fleet.questions[i], own_row(fleet, i, r)
        if request.chunk > 0:
            before = request.computed
            total = question.prompt_tokens + flight.tokens_out
            after = before + request.chunk
            request.chunk = 0
            request.computed = after + repeats
            _name_filled(fleet, r, i, before // size, (after + repeats) // size)
            if after == total:
                if np.isnan(flight.first_token_ms):
                    count_first_token(known, own, i, question.prompt_tokens, now_ms)
                elif request.last_token_ms == replica.start_ms:
                    steady += 1
                else:
                    _count_gaps(fleet, r, 1, first_ms - request.last_token_ms)
                request.last_token_ms = now_ms
                count_tokens(known, own, i, 1 + repeats)
        if flight.tokens_out >= question.output_tokens:
            _finish(fleet, r, i, now_ms)
        else:
            fleet.order[r, kept] = i
            kept += 1
    replica.running = kept
    if steady > 0:
        _count_gaps(fleet, r, steady, replica.base_ms)
    if repeats > 0:
        _count_growing_gaps(fleet, r, repeats)


@inner_inlined
def _count_gaps(fleet: Fleet, r: int, tokens: int, gap_ms: float) -> None:
    fleet.gaps[r, gap_bin(gap_ms)] += tokens
    fleet.replicas[r].gap_total_ms += tokens * gap_ms


@inner
def _count_growing_gaps(fleet: Fleet, r: int, repeats: int) -> None:
    """The gaps of the iterations of a stretch after its first one, bin by bin."""
    replica = fleet.replicas[r]
    base_ms, growth_ms = replica.base_ms, replica.growth_ms
    done = 0
    while done < repeats:
        found = gap_bin(base_ms + growth_ms * (done + 1))
        last = repeats
        if growth_ms > 0.0:
            last = int((gap_bin_end_ms(found) - base_ms) / growth_ms)
        last = min(repeats, max(last, done + 1))
        fleet.gaps[r, found] += replica.decodes * (last - done)
        done = last
    total_ms = stretch_ms(base_ms, growth_ms, repeats + 1) - base_ms
    replica.gap_total_ms += replica.decodes * total_ms


@inner_inlined
def _count_work(fleet: Fleet, r: int) -> None:
    replica = fleet.replicas[r]
    took_ms = replica.end_ms - replica.start_ms
    used = replica.capacity - replica.free
    replica.iterations += replica.length
    replica.decode_tokens += replica.decodes * replica.length
    replica.busy_ms += took_ms
    replica.kv_block_ms += 0.5 * took_ms * (replica.used_at_start + used)
    replica.least_free = min(replica.least_free, replica.free)


@inner_inlined
def _name_filled(fleet: Fleet, r: int, i: int, first: int, last: int) -> None:
    """Others find these blocks of the request from now on, unless its end is waited for."""
    if fleet.engines[r].shares_late == 0:
        name_blocks(fleet, r, i, first, last)


@inner_inlined
def _finish(fleet: Fleet, r: int, i: int, now_ms: float) -> None:
    """The request is done there. A prefill by itself keeps its blocks until they are fetched."""
    request = fleet.progress[i]
    request.finish_ms = now_ms
    if fleet.engines[r].shares_late == 1:
        name_blocks(fleet, r, i, 0, request.computed // fleet.engines[r].block_size)
    end_account(fleet, r, i)
    if fleet.questions[i].decode_row == NONE:
        request.status = FINISHED
        learn_output(fleet.in_flight, fleet.flights[i].tokens_out)
        free_seat(fleet, r, i)
    else:
        request.status = HANDED_OVER
        send_to_decode(fleet, i, now_ms)


@inner
def end_account(fleet: Fleet, r: int, i: int) -> None:
    """The router counts the request there no more, nor expects its blocks."""
    question = fleet.questions[i]
    count_ended(fleet.in_flight, own_row(fleet, i, r), i, question.prompt_tokens)
    if fleet.knowledge.clock[0].keeps_holders == 1:
        first = question.router * fleet.knowledge.told.shape[0]
        for place in range(question.chain_start, question.chain_start + question.prompt_blocks):
            expect_no_more(fleet.knowledge, first, r, fleet.chain_blocks[place])
