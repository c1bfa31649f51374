"""One choice of every kind before the first request, so that all of it is compiled."""

from __future__ import annotations

import math

from pointsman.dispatch.dispatcher import Dispatcher, Ending, Question, Rules
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.pair_dispatcher import PairDispatcher, PairFleet
from pointsman.dispatch.pair_ledger import Pairs, pairs_of
from pointsman.dispatch.prefix_index import Chain
from pointsman.router.prompt import BLOCK_TOKENS


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
