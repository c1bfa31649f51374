import pytest

from pointsman import FifoFleet, policy_named, simulate
from pointsman.core.errors import InputError
from pointsman.dispatch.dispatcher import Dispatcher, Ending, Question, Rules
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.log_writer import DecisionLog
from pointsman.dispatch.prefix_index import Chain
from pointsman.dispatch.question import Wait
from pointsman.dispatch.record import Usage
from pointsman.replay.workload import workload_of_log
from pointsman.router.router_settings import RouterSettings, head_of
from pointsman.router.upstream import replica_address

RULES = Rules(policy_named("round_robin"))
REPLICAS = [replica_address("http://127.0.0.1:8001")]


def logged(path, *asked: tuple[Question, Usage | None]):
    """A log in which a request comes every 10 ms; None: it was still in flight at the end."""
    log = DecisionLog(path, head_of(RouterSettings(REPLICAS, RULES, "round_robin")), print)
    now_ms = [0.0]
    deciding = Dispatcher(RULES, [ReplicaFacts()], lambda: now_ms[0], log)
    for question, usage in asked:
        now_ms[0] += 10
        ticket = deciding.choose(question)
        if usage is not None:
            ticket.end(Ending(status="ok", usage=usage))
    log.close()
    return path


def question(name: str, blocks=(), tokens=200, session=None) -> Question:
    return Question(name, "/v1/completions", tokens, 256, Chain(blocks, 64), session)


def test_requests_become_rows_with_the_engines_counts(tmp_path):
    path = logged(
        tmp_path / "log",
        (question("a", [1, 2, 3], session="s"), Usage(200, 12, 0)),
        (question("b", [1, 2, 4], session="t"), Usage(200, 7, 128)),
        (question("c", [1], session="s"), Usage(200, 9, 64)),
    )
    workload = workload_of_log(path)
    assert workload.arrival_ms.tolist() == [10, 20, 30]
    assert workload.prompt_tokens.tolist() == [200, 200, 200]
    assert workload.output_tokens.tolist() == [12, 7, 9]
    assert workload.session.tolist() == [0, 1, 0]
    assert [workload.chain(row).tolist() for row in range(3)] == [[0, 1, 2], [0, 1, 3], [0]]
    assert workload.block_size_tokens == 64
    assert workload.names.requests == ("a", "b", "c")


def test_estimates_stand_in_for_counts_that_are_missing_and_the_source_says_so(tmp_path):
    path = logged(
        tmp_path / "log",
        (question("a"), None),
        (question("b"), Usage()),
        (question("c"), Usage(200, 3, 0)),
    )
    workload = workload_of_log(path)
    assert workload.output_tokens.tolist() == [256, 256, 3]
    assert workload.source.format == "decision_log; tokens of 2 of 3 requests are estimates"
    assert len(workload.source.sha256) == 64


def test_a_block_is_as_many_tokens_as_the_engine_counts_in_it(tmp_path):
    """200 tokens were estimated where the engine counted 300: a block of 64 is one of 96."""
    path = logged(tmp_path / "log", (question("a", [1, 2, 3]), Usage(300, 1, 0)))
    workload = workload_of_log(path)
    assert workload.block_size_tokens == 96
    assert workload.prefix_tokens.tolist() == [288]


def test_a_block_is_never_larger_than_a_prompt_can_be(tmp_path):
    counted = Usage(2**31 - 1, 1, 0)
    path = logged(tmp_path / "log", (question("a", [1], tokens=1), counted))
    workload = workload_of_log(path)
    assert workload.block_size_tokens == 2**31 - 1
    assert workload.prompt_tokens.tolist() == [2**31 - 1]


def test_a_chain_never_covers_more_than_its_prompt(tmp_path):
    path = logged(
        tmp_path / "log",
        (question("a", [1, 2, 3]), Usage(400, 1, 0)),
        (question("b", [1, 2, 3]), Usage(100, 1, 0)),
    )
    workload = workload_of_log(path)
    assert workload.block_size_tokens == 80
    assert workload.prefix_tokens.tolist() == [240, 80]


def test_requests_without_a_prompt_are_left_out_and_counted(tmp_path):
    path = logged(
        tmp_path / "log",
        (Question("models", "/v1/models"), Usage()),
        (question("a"), Usage(200, 1, 0)),
        (Question("embeddings", "/v1/embeddings", output_tokens=256), Usage(50, None, None)),
    )
    workload = workload_of_log(path)
    assert workload.names.requests == ("a", "embeddings")
    assert workload.output_tokens.tolist() == [1, 0]
    assert workload.source.skipped_lines == 1


def test_an_id_that_comes_twice_gets_a_name_of_its_own(tmp_path):
    path = logged(tmp_path / "log", (question("a"), None), (question("a"), None))
    assert workload_of_log(path).names.requests == ("a", "a#1")


def test_a_request_that_waited_came_before_its_choice_and_one_that_got_none_came_too(tmp_path):
    """The first is sent at 30, the others are given up at 25."""
    log = DecisionLog(tmp_path / "log", head_of(RouterSettings(REPLICAS, RULES, "-")), print)
    now_ms = [30.0]
    deciding = Dispatcher(RULES, [ReplicaFacts()], lambda: now_ms[0], log)
    deciding.choose(question("a"), wait=Wait(10.0)).end(Ending(status="ok", usage=Usage(9, 3)))
    now_ms[0] = 25.0
    deciding.give_up(question("b", [7]), Wait(10.0), "client_left")
    deciding.give_up(question("b", tokens=20), Wait(20.0), "overloaded")
    log.close()
    workload = workload_of_log(tmp_path / "log")
    assert workload.names.requests == ("a", "b", "b#unplaced 1")
    assert workload.arrival_ms.tolist() == [10, 10, 20]
    assert workload.prompt_tokens.tolist() == [9, 200, 20]
    assert workload.output_tokens.tolist() == [3, 256, 256]


def test_a_log_without_prompts_is_an_input_error(tmp_path):
    path = logged(tmp_path / "log", (Question("models", "/v1/models"), None))
    with pytest.raises(InputError, match="no request has a prompt"):
        workload_of_log(path)


def test_the_simulator_takes_it(tmp_path):
    asked = [(question(str(n), [1, 2, n + 9], session=f"s{n % 5}"), None) for n in range(40)]
    workload = workload_of_log(logged(tmp_path / "log", *asked))
    routed = simulate(workload, policy_named("locality_aware"), FifoFleet(2))
    assert (routed.service_ms > 0).all()
    assert routed.cached_tokens[1:].max() == 128
