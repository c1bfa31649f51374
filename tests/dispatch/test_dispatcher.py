from contextlib import suppress

import pytest

from pointsman.core.errors import InputError
from pointsman.costs.iteration import IterationCosts
from pointsman.dispatch.dispatcher import DecisionSink, Dispatcher, Ending, Question, Rules
from pointsman.dispatch.draws import draw
from pointsman.dispatch.facts import ReplicaFacts, check_facts
from pointsman.dispatch.prefix_index import Chain
from pointsman.policies.catalogue import policy_named

# A millisecond a token, and 20 an iteration.
FACTS = ReplicaFacts(IterationCosts(20.0, 1.0, 2.0, 0.0))


class Lines(list, DecisionSink):
    write = list.append


def dispatcher(policy: str, replicas: int = 2, log=None) -> Dispatcher:
    return Dispatcher(Rules(policy_named(policy)), [FACTS] * replicas, lambda: 1000.0, log)


def question(name: str = "q", **changes) -> Question:
    return Question(name, **{"prompt_tokens": 30, "output_tokens": 5, **changes})


def test_simultaneous_requests_spread_because_each_choice_counts_at_once():
    deciding = dispatcher("least_requests", replicas=4)
    for number in range(64):
        deciding.choose(question(str(number)))
    assert deciding.ledger.requests.tolist() == [16, 16, 16, 16]


def pending_ms(deciding: Dispatcher) -> list[float]:
    return deciding.ledger.known.accounts["pending_ms"].tolist()


def test_expected_work_is_the_uncached_prompt_in_ms():
    deciding = dispatcher("round_robin", replicas=1)
    chain = Chain([11, 12], block_tokens=10)
    deciding.choose(question(chain=chain, streams=True))
    assert pending_ms(deciding) == [30]
    deciding.choose(question(chain=chain, streams=True))  # 20 of its 30 tokens are there by now
    assert pending_ms(deciding) == [30 + 10]


def test_a_prompt_that_was_not_read_is_priced_and_stays_unknown():
    log = Lines()
    deciding = dispatcher("round_robin", replicas=1, log=log)
    deciding.choose(Question("q", output_tokens=5, unread_tokens=30))
    assert pending_ms(deciding) == [30]
    assert (log[0].prompt_tokens, log[0].output_tokens) == (None, 5)
    assert log[0].priced_tokens == 30


def test_a_request_of_unknown_size_is_counted_and_costs_nothing():
    deciding = dispatcher("round_robin", replicas=1)
    deciding.choose(Question("q"))
    assert deciding.ledger.requests.tolist() == [1]
    assert pending_ms(deciding) == [0]


def test_the_expected_wait_is_the_work_in_front():
    deciding = dispatcher("round_robin", replicas=1)
    assert deciding.choose(question(streams=True)).chosen.expected_wait_ms == 0
    assert deciding.choose(question(streams=True)).chosen.expected_wait_ms == 30


def test_a_session_stays_with_its_replica_within_the_slack():
    deciding = dispatcher("locality_aware:slack_ms=1000")
    tickets = [deciding.choose(question(session="s")) for _ in range(3)]
    assert [ticket.replica for ticket in tickets] == [0, 0, 0]
    assert [ticket.chosen.reason for ticket in tickets[1:]] == ["sticky_session"] * 2


def test_a_choice_among_some_replicas_is_made_and_recorded_among_them():
    log = Lines()
    deciding = dispatcher("least_requests", replicas=3, log=log)
    deciding.choose(question(session="s"), candidates=[1])
    ticket = deciding.choose(question(session="s"), candidates=[1, 2])
    assert ticket.replica == 2
    assert (log[1].candidates, log[1].home) == ([1, 2], 1)
    assert log[1].view["requests"] == [1, 0]
    assert deciding.ledger.requests.tolist() == [0, 1, 1]


def test_where_the_holder_of_the_prefix_is_left_out_the_least_loaded_is_taken():
    deciding = dispatcher("locality_aware:slack_ms=1000", replicas=3)
    chain = Chain([11], block_tokens=10)
    deciding.choose(question(chain=chain, session="s"), candidates=[1])
    deciding.choose(question(), candidates=[0])
    ticket = deciding.choose(question(chain=chain, session="s"), candidates=[0, 2])
    assert (ticket.replica, ticket.chosen.reason) == (2, "queue_fallback")


def test_a_ticket_ends_once():
    log = Lines()
    deciding = dispatcher("round_robin", log=log)
    ticket = deciding.choose(question())
    ticket.end(Ending(status="ok"))
    ticket.end(Ending(status="cancelled"))
    assert deciding.ledger.in_flight == 0
    assert [getattr(line, "status", "choice") for line in log] == ["choice", "ok"]


def test_the_log_holds_every_signal_whatever_the_policy_reads():
    log = Lines()
    deciding = dispatcher("round_robin", log=log)
    chain = Chain([11], block_tokens=10)
    deciding.choose(question(chain=chain, session="s", streams=True))
    deciding.choose(question(chain=chain, session="s", streams=True))
    assert log[1].view == {
        "queue": [1030, 1000],
        "requests": [1, 0],
        "prefix": [10, 0],
        "work_ms": [20, 30],
        "full_work_ms": [30, 30],
        "pending_tokens": [30, 0],
        "context_tokens": [30, 0],
        "waiting": [1, 0],
        "running": [0, 0],
        "kv_use": [0, 0],  # nobody knows: it decides nothing
        "iteration_ms": [20, 20],
    }
    assert (log[1].candidates, log[1].seen, log[1].hits) == ([0, 1], [0, 1], {0: 10})
    assert log[1].home == 0
    assert log[1].random == draw(0, 1)
    assert log[1].block_hashes == ["000000000000000b"]


def test_draws_are_the_simulators_splitmix64():
    # By hand from the reference implementation: state = seed * constant + (n + 1) * gamma.
    def reference(seed: int, n: int) -> float:
        mask = 2**64 - 1
        z = (seed * 0xD1342543DE82EF95 + (n + 1) * 0x9E3779B97F4A7C15) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return ((z ^ (z >> 31)) >> 11) / 2**53

    assert [draw(3, n) for n in range(50)] == [reference(3, n) for n in range(50)]


def test_a_choice_that_fails_changes_nothing():
    class FullOnce(Lines):
        def write(self, line):
            if line.request_id == "bad":
                raise OverflowError
            self.append(line)

    log = FullOnce()
    deciding = dispatcher("locality_aware", log=log)
    chain = Chain([11], block_tokens=10)
    for name in ("good", "bad", "good"):
        with suppress(OverflowError):
            deciding.choose(question(name, chain=chain, session=name))
    with pytest.raises(OverflowError):
        deciding.choose(question("huge", prompt_tokens=10**400))
    deciding.choose(question("good"))
    assert [line.sequence for line in log] == [0, 1, 2]
    assert deciding.ledger.in_flight == 3
    assert deciding.homes.of("bad", 0.0) == -1


@pytest.mark.parametrize("seed", [-1, 1 << 63])
def test_a_seed_that_cannot_be_drawn_from_is_refused(seed):
    with pytest.raises(InputError, match=rf"seed is {seed}; expected an integer in 0\.\."):
        Rules(policy_named("random"), seed=seed)
    assert 0 <= draw(Rules(policy_named("random"), seed=2**63 - 1).seed, 0) < 1


def test_costs_that_no_log_could_hold_are_refused():
    with pytest.raises(InputError, match=r"tokens is 1\.34\S+e\+308; expected at most 1e"):
        check_facts("here", ReplicaFacts(IterationCosts(0.0, 1e300, 0.0, 0.0)))


def test_costs_of_a_slow_small_engine_are_no_error():
    # As fitted to llama.cpp on one core: attention dear, and yet no prompt beyond all clocks.
    check_facts("here", ReplicaFacts(IterationCosts(0.08, 0.09, 0.16, 0.0026, 0.001)))
