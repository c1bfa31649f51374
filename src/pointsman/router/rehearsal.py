"""One choice of every kind before the first request, so that all of it is compiled."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from pointsman.core.compiled import Kernel
from pointsman.dispatch.dispatcher import Dispatcher, Ending, Question, Rules
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.ledger import ALWAYS_NEEDED
from pointsman.dispatch.pair_dispatcher import PairDispatcher, PairFleet
from pointsman.dispatch.pair_ledger import Pairs, pairs_of
from pointsman.dispatch.prefix_index import Chain
from pointsman.dispatch.prefix_table import hold
from pointsman.router.prompt import BLOCK_TOKENS

# Which every rehearsal calls.
KERNELS: tuple[Kernel, ...] = (*ALWAYS_NEEDED, hold)
# Measured on an idle core of 2026: 9 s.
COMPILING = (
    "compiling the router, once for this version of Pointsman: some 10 s of an idle core, more"
    " where others use the cores; it answers after that"
)


def announce_compilation(say: Callable[[str], None], kernels: Iterable[Kernel] = KERNELS) -> None:
    """Say that what a choice runs is compiled now, if no process has done that before."""
    if not all(kernel.is_cached() for kernel in kernels):
        say(COMPILING)


def compile_for(rules: Rules, replicas: int) -> None:
    """Compile all that a choice runs, so that no request waits for it.

    Raises InputError for a policy that chooses what is not there.
    """
    rehearsal = Dispatcher(rules, [ReplicaFacts()] * replicas, lambda: 0.0)
    question = Question("rehearsal", chain=Chain([1], BLOCK_TOKENS), streams=True)
    ticket = rehearsal.choose(question)
    ticket.first_token()
    ticket.end(Ending())
    rehearsal.read(0, (math.nan, math.nan, math.nan))


def rehearse_pairs(rules: Rules) -> None:
    """Compile all that a choice of a pair runs.

    Raises InputError for a policy that chooses what is not there.
    """
    fleet = PairFleet([ReplicaFacts()] * 2, Pairs(pairs_of([0], [1])))
    rehearsal = PairDispatcher(rules, fleet, lambda: 0.0)
    for streams in (True, False):
        question = Question("rehearsal", chain=Chain([1], 1), streams=streams)
        ticket = rehearsal.send(rehearsal.ask(question, [0]))
        ticket.prefilled()
        ticket.first_token()
        ticket.end(Ending())
    ticket = rehearsal.send(rehearsal.ask(question, [0]))
    ticket.fall_back("rehearsal")
    ticket.end(Ending())
