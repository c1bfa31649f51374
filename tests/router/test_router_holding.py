"""Requests that wait in the router: for a replica that is ready, or for one that is not full."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pointsman.costs.iteration import IterationCosts
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.log_file import read_log
from pointsman.policies.policy import policy
from pointsman.replay.replay import replay_same
from pointsman.router.settings import Holding
from tests.router.fake_replicas import FakeReplica, answer_json, answer_stream, never_answer
from tests.router.raw_http import RawClient
from tests.router.routers import Bench, bench, chat, completion, rule_by, run, until

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"

PATIENT = Holding(timeout_ms=1e6)


@asynccontextmanager
async def clients(port: int, count: int):
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(RawClient(port)) for _ in range(count)]


async def all_gone(at: Bench) -> None:
    for fake in at.fakes:
        await fake.__aexit__()
    members = at.router.membership.members
    await until(lambda: all(member.state == "unreachable" for member in members))


def held(at: Bench) -> tuple[int, int]:
    return at.router.admission.held, at.router.admission.held_bytes


def reached(at: Bench) -> int:
    return sum(len(fake.requests) for fake in at.fakes)


# While no replica is ready.


def test_a_restart_of_all_replicas_under_load_is_no_error():
    """A request is lost at most once on each of the two, so two retries are enough."""

    async def load(port: int, ends: asyncio.Event) -> set[int]:
        async with RawClient(port) as client:
            statuses = set()
            while not ends.is_set():
                statuses.add((await client.post(CHAT, chat())).status)
            return statuses

    async def main():
        async with bench(answer_json, answer_json, holding=PATIENT, retries=2) as at:
            ends = asyncio.Event()
            loads = [asyncio.ensure_future(load(at.port, ends)) for _ in range(16)]
            await until(lambda: min(len(fake.requests) for fake in at.fakes) > 100)
            await all_gone(at)
            await until(lambda: held(at)[0] == 16)
            async with (
                FakeReplica(port=at.fakes[0].port) as one,
                FakeReplica(port=at.fakes[1].port) as two,
            ):
                await until(lambda: min(len(one.requests), len(two.requests)) > 100)
                ends.set()
                return await asyncio.gather(*loads), held(at)

    assert run(main()) == ([{200}] * 16, (0, 0))


def test_all_that_wait_are_served_when_a_replica_is_back():
    async def main():
        async with bench(answer_json, holding=PATIENT) as at:
            await all_gone(at)
            async with clients(at.port, 5) as waiting:
                for number, client in enumerate(waiting):
                    client.send("POST", CHAT, chat(), x_request_id=str(number))
                    await until(lambda n=number: held(at)[0] == n + 1)
                async with FakeReplica(port=at.fake.port) as back:
                    statuses = [(await client.response()).status for client in waiting]
                    return statuses, [sent.headers["x-request-id"] for sent in back.requests]

    statuses, served = run(main())
    assert statuses == [200] * 5
    assert sorted(served) == list("01234")


def test_choices_for_those_that_wait_are_made_in_order(tmp_path):
    async def main():
        async with bench(answer_json, holding=PATIENT, log=tmp_path / "log") as at:
            await all_gone(at)
            async with clients(at.port, 5) as waiting:
                for number, client in enumerate(waiting):
                    client.send("POST", CHAT, chat(), x_request_id=str(number))
                    await until(lambda n=number: held(at)[0] == n + 1)
                async with FakeReplica(port=at.fake.port):
                    for client in waiting:
                        await client.response()

    run(main())
    choices = read_log(tmp_path / "log").choices
    assert [choice.request_id for choice in choices] == list("01234")


@pytest.mark.parametrize(
    "holding",
    [Holding(requests=2, timeout_ms=1e6), Holding(bytes=2 * 92, timeout_ms=1e6)],
    ids=["requests", "bytes"],
)
def test_beyond_the_bounds_of_the_queue_it_is_a_503_at_once(holding):
    body = b'{"prompt":"%b"}' % (b"x" * 79)
    assert len(body) == 92

    async def main():
        async with bench(answer_json, holding=holding) as at:
            await all_gone(at)
            async with clients(at.port, 2) as waiting:
                for client in waiting:
                    client.send("POST", COMPLETIONS, body)
                await until(lambda: held(at) == (2, 184))
                refused = await at.client.post(COMPLETIONS, body)
                health = (await at.client.request("GET", "/health")).json
            await until(lambda: held(at) == (0, 0))
            return refused, health, len(at.fake.requests)

    refused, health, reached = run(main())
    assert (refused.status, refused.json["error"]["code"]) == (503, "no_replica_ready")
    assert "2 requests wait" in refused.json["error"]["message"]
    assert int(refused.headers["retry-after"]) > 0
    assert (health["held"], health["held_bytes"], health["refused"]) == (2, 184, 1)
    assert reached == 0


def test_who_waits_too_long_gets_a_503(tmp_path):
    async def main():
        holding = Holding(timeout_ms=40.0)
        async with bench(answer_json, holding=holding, log=tmp_path / "log") as at:
            await all_gone(at)
            return await at.client.post(CHAT, chat(), x_request_id="mine"), held(at)

    response, left = run(main())
    assert (response.status, response.headers["x-pointsman-request-id"]) == (503, "mine")
    assert "after 40 ms" in response.json["error"]["message"]
    assert left == (0, 0)
    log = read_log(tmp_path / "log")
    assert log.choices == []
    [line] = log.unplaced
    assert (line.request_id, line.cause, line.after) == ("mine", "no_replica_ready", None)
    # A timer of the loop counts from the beginning of its turn, in whole milliseconds.
    assert line.waited_ms >= 40.0 - 5.0


def test_who_waits_again_does_not_wait_longer_in_all():
    """A replica that takes its probes' connections but never a request's: back, gone, back."""

    async def main():
        async with bench(answer_json, holding=Holding(timeout_ms=150.0), retries=0) as at:
            await at.fake.__aexit__()
            health = at.router.membership[0].health

            async def flap():
                while True:
                    health.is_well()
                    await asyncio.sleep(0.005)

            flapping = asyncio.ensure_future(flap())
            response = await at.client.post(CHAT, chat())
            flapping.cancel()
            return response

    response = run(main())
    assert response.status == 503
    assert int(response.headers["x-pointsman-attempts"]) > 2


def test_a_client_that_leaves_while_it_waits_leaves_nothing_behind(tmp_path):
    async def main():
        async with bench(answer_json, holding=PATIENT, log=tmp_path / "log") as at:
            await all_gone(at)
            async with RawClient(at.port) as leaver:
                leaver.send("POST", CHAT, chat("x" * 999))
                await until(lambda: held(at)[0] == 1)
            await until(lambda: held(at) == (0, 0))
            async with FakeReplica(port=at.fake.port) as back:
                assert (await at.client.post(CHAT, chat())).status == 200
                return len(back.requests), len(at.router.dispatcher.prefixes)

    assert run(main()) == (1, 0)
    log = read_log(tmp_path / "log")
    assert len(log.choices) == 1
    assert [line.cause for line in log.unplaced] == ["client_left"]


def test_a_client_that_waits_and_would_be_asked_for_a_further_body_leaves_without_an_error():
    async def main():
        errors = []
        asyncio.get_running_loop().set_exception_handler(lambda _, error: errors.append(error))
        async with bench(answer_json, holding=PATIENT) as at:
            await all_gone(at)
            async with RawClient(at.port) as leaver:
                leaver.send("POST", CHAT, chat())
                head = f"POST {CHAT} HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\n"
                leaver.writer.write(f"{head}content-length: 9\r\n\r\n".encode())
                await until(lambda: held(at)[0] == 1)
                connections = at.router.edge.connections
                await until(lambda: any(each._owes_continue for each in connections))
            await until(lambda: held(at) == (0, 0))
            return errors, at.complaints

    assert run(main()) == ([], [])


def test_a_policy_that_breaks_on_one_that_waits_is_that_ones_error():
    @policy(rule="-", source="-", reasons=("-",))
    def raising(request, view, parameters):
        if request.prompt_tokens > 100:
            raise ValueError
        return 0, 0

    async def main():
        async with bench(answer_json, holding=PATIENT) as at:
            rule_by(at.router, raising)
            await all_gone(at)
            async with clients(at.port, 3) as waiting:
                for client, text in zip(waiting, ("a", "x" * 999, "b"), strict=True):
                    client.send("POST", CHAT, chat(text))
                await until(lambda: held(at)[0] == 3)
                async with FakeReplica(port=at.fake.port):
                    return [(await client.response()).status for client in waiting]

    assert run(main()) == [200, 500, 200]


# While all are full.


class Gate:
    """A script whose answers wait to be let through, one by one."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.passes = asyncio.Semaphore(0)

    async def __call__(self, request, wire) -> None:
        self.asked.append(request.headers["x-request-id"])
        await self.passes.acquire()
        await answer_json(request, wire)


def test_no_replica_gets_more_at_once_than_the_limit_and_the_others_wait_their_turn():
    async def main():
        gate = Gate()
        async with (
            bench(gate, gate, holding=PATIENT, max_in_flight=2) as at,
            clients(at.port, 7) as asking,
        ):
            for number, client in enumerate(asking):
                client.send("POST", CHAT, chat(), x_request_id=str(number))
                await until(lambda n=number: len(gate.asked) + held(at)[0] == n + 1)
            counts = at.router.dispatcher.ledger.requests.tolist()
            waiting = held(at)[0]
            gate.passes.release()
            await until(lambda: len(gate.asked) == 5)
            for _ in range(6):
                gate.passes.release()
            statuses = [(await client.response()).status for client in asking]
            return counts, waiting, gate.asked[4], statuses

    assert run(main()) == ([2, 2], 3, "4", [200] * 7)


def test_beyond_the_queue_it_is_a_429_that_says_when_to_come_back():
    async def main():
        holding = Holding(requests=1, timeout_ms=1e6)
        async with (
            bench(never_answer, holding=holding, max_in_flight=1) as at,
            clients(at.port, 2) as others,
        ):
            for number, client in enumerate(others):
                client.send("POST", CHAT, chat())
                await until(lambda n=number: len(at.fake.requests) + held(at)[0] == n + 1)
            return await at.client.post(CHAT, chat())

    response = run(main())
    assert (response.status, response.json["error"]["code"]) == (429, "overloaded")
    assert response.headers["retry-after"] == "1"
    assert "1 requests in flight" in response.json["error"]["message"]


def test_who_waited_and_who_was_turned_away_stands_on_the_page_of_metrics():
    async def main():
        async with bench(answer_json, holding=Holding(requests=2, timeout_ms=1e6)) as at:
            await all_gone(at)
            async with clients(at.port, 2) as waiting, RawClient(at.port) as third:
                for number, client in enumerate(waiting):
                    client.send("POST", CHAT, chat())
                    await until(lambda n=number: held(at)[0] == n + 1)
                assert (await third.post(CHAT, chat())).status == 503
                async with FakeReplica(port=at.fake.port):
                    statuses = [(await client.response()).status for client in waiting]
            return statuses, (await at.client.request("GET", "/metrics")).body.decode()

    statuses, page = run(main())
    assert statuses == [200, 200]
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert samples["pointsman_shed_requests_total", "no_replica_ready"] == 1
    assert samples["pointsman_hold_seconds_count",] == 2
    assert samples["pointsman_hold_seconds_sum",] > 0


def test_who_waits_too_long_for_a_place_gets_a_429():
    async def main():
        holding = Holding(timeout_ms=40.0)
        async with (
            bench(never_answer, holding=holding, max_in_flight=1) as at,
            RawClient(at.port) as other,
        ):
            other.send("POST", CHAT, chat())
            await until(lambda: len(at.fake.requests) == 1)
            return (await at.client.post(CHAT, chat())).status

    assert run(main()) == 429


def test_without_a_limit_nobody_waits():
    async def main():
        async with bench(never_answer, holding=PATIENT) as at, clients(at.port, 50) as asking:
            for client in asking:
                client.send("POST", COMPLETIONS, completion())
            await until(lambda: len(at.fake.requests) == 50)
            return held(at)

    assert run(main()) == (0, 0)


# For a replica that has much to do.

# A prompt token is expected to take seconds: what waits does not get less by itself.
SLOW = ReplicaFacts(IterationCosts(1.0, 1e6, 0.0, 0.0))
SHORT, LONG = chat("Hi", stream=True), chat("Hi " * 99, stream=True)


class StreamGate(Gate):
    """The same with streams: the first token comes when one is let through."""

    async def __call__(self, request, wire) -> None:
        self.asked.append(request.headers["x-request-id"])
        await self.passes.acquire()
        await answer_stream(request, wire)


@pytest.mark.parametrize(
    ("order", "expected"), [("fcfs", ["0", "1", "2"]), ("shortest_prefill", ["0", "2", "1"])]
)
def test_behind_a_prompt_that_is_computed_requests_are_held_and_go_in_their_order(
    tmp_path, order, expected
):
    async def main():
        gate = StreamGate()
        holding = Holding(timeout_ms=1e6, wait_ms=0.0, order=order, ageing=0.0)
        async with (
            bench(gate, holding=holding, facts=SLOW, log=tmp_path / "log") as at,
            clients(at.port, 3) as asking,
        ):
            for number, body in enumerate((SHORT, LONG, SHORT)):
                asking[number].send("POST", CHAT, body, x_request_id=str(number))
                await until(lambda n=number: len(gate.asked) + held(at)[0] == n + 1)
            health = (await at.client.request("GET", "/health")).json
            for number in range(3):
                await until(lambda n=number: len(gate.asked) == n + 1)
                gate.passes.release()
            statuses = [(await client.response()).status for client in asking]
            return health["held"], health["replicas"][0]["in_flight"], statuses, gate.asked

    assert run(main()) == (2, 1, [200] * 3, expected)
    log = read_log(tmp_path / "log")
    assert [choice.request_id for choice in log.choices] == expected
    assert [choice.after is not None for choice in log.choices] == [False, True, True]
    assert replay_same(log).differences == []


def test_who_is_held_for_long_enough_is_sent_to_a_replica_that_is_there():
    async def main():
        holding = Holding(timeout_ms=40.0, wait_ms=0.0)
        async with (
            bench(first_never_then(answer_stream), holding=holding, facts=SLOW) as at,
            RawClient(at.port) as other,
        ):
            other.send("POST", CHAT, SHORT)
            await until(lambda: len(at.fake.requests) == 1)
            return (await at.client.post(CHAT, SHORT)).status, held(at)

    assert run(main()) == (200, (0, 0))


def first_never_then(then):
    """A script that never answers its first request."""
    asked = []

    async def script(request, wire) -> None:
        asked.append(request)
        await (never_answer if len(asked) == 1 else then)(request, wire)

    return script


def test_a_client_that_leaves_while_it_is_held_leaves_nothing_behind(tmp_path):
    async def main():
        holding = Holding(timeout_ms=1e6, wait_ms=0.0)
        log = tmp_path / "log"
        async with (
            bench(never_answer, holding=holding, facts=SLOW, log=log) as at,
            RawClient(at.port) as other,
        ):
            other.send("POST", CHAT, SHORT)
            await until(lambda: len(at.fake.requests) == 1)
            async with RawClient(at.port) as leaver:
                leaver.send("POST", CHAT, LONG, x_request_id="leaver")
                await until(lambda: held(at)[0] == 1)
                counted = at.router.dispatcher.ledger.held_for(0)
            await until(lambda: held(at) == (0, 0))
            return counted, at.router.dispatcher.ledger.held_for(0)

    assert run(main()) == (1, 0)
    [line] = read_log(tmp_path / "log").unplaced
    assert (line.request_id, line.cause, line.after) == ("leaver", "client_left", 1)


def test_a_drained_replica_keeps_nobody_who_is_held_for_it():
    async def main():
        holding = Holding(timeout_ms=1e6, wait_ms=0.0)
        gate = StreamGate()
        async with (
            bench(never_answer, gate, holding=holding, facts=SLOW, policy="queue_aware") as at,
            clients(at.port, 3) as asking,
        ):
            for number, body in enumerate((SHORT, LONG, SHORT)):
                asking[number].send("POST", CHAT, body, x_request_id=str(number))
                await until(lambda n=number: reached(at) + held(at)[0] == n + 1)
            ledger = at.router.dispatcher.ledger
            before = ledger.held_for(0), ledger.held_for(1)
            at.router.membership.drain(0)
            after = ledger.held_for(0), ledger.held_for(1)
            gate.passes.release()
            gate.passes.release()
            statuses = [(await client.response()).status for client in asking[1:]]
            return before, after, statuses

    assert run(main()) == ((1, 0), (0, 1), [200, 200])


@pytest.mark.parametrize("policy", ["fewest_misses", "locality_aware", "round_robin"])
def test_a_log_under_load_with_holding_replays_to_the_same_choices(tmp_path, policy):
    """An answer takes no time, and a prompt is expected to take some: it is held for that long."""

    async def converse(port: int, session: int) -> None:
        async with RawClient(port) as client:
            text = f"Group {session % 3}. " * 300
            for turn in range(5):
                text += f"Turn {turn} of session {session}. " * 9
                body = chat(text, stream=turn % 2 == 0)
                await client.post(CHAT, body, x_session_id=f"session-{session}")

    async def main():
        scripts, holding = (answer_json, answer_stream), Holding(timeout_ms=1e6, wait_ms=1.0)
        async with bench(*scripts, policy=policy, holding=holding, log=tmp_path / "log") as at:
            await asyncio.gather(*(converse(at.port, session) for session in range(16)))

    run(main())
    log = read_log(tmp_path / "log")
    assert len(log.asks) - len(log.choices) >= 10
    result = replay_same(log)
    assert (result.choices, result.differences, result.unfinished) == (len(log.asks), [], 0)
    assert len(log.choices) == 80


# For a model.


def test_nobody_waits_behind_one_whose_model_no_replica_serves_just_now():
    async def main():
        models = [("a",), ("b",)]
        async with bench(answer_json, answer_json, models=models, holding=PATIENT) as at:
            await at.fakes[0].__aexit__()
            await until(lambda: at.router.membership[0].state == "unreachable")
            async with RawClient(at.port) as waiting:
                waiting.send("POST", CHAT, chat(model="a"))
                await until(lambda: held(at)[0] == 1)
                others = [(await at.client.post(CHAT, chat(model="b"))).status for _ in range(3)]
                async with FakeReplica(port=at.fakes[0].port) as back:
                    answer = await waiting.response()
                    return others, answer.status, len(back.requests), held(at)

    assert run(main()) == ([200] * 3, 200, 1, (0, 0))


def test_of_those_that_wait_for_different_models_on_one_replica_who_came_first_goes_first():
    async def main():
        gate = Gate()
        models = [("a", "b")]
        async with (
            bench(gate, models=models, holding=PATIENT, max_in_flight=1) as at,
            clients(at.port, 5) as asking,
        ):
            for number, client in enumerate(asking):
                body = chat(model="ab"[number % 2])
                client.send("POST", CHAT, body, x_request_id=str(number))
                await until(lambda n=number: len(gate.asked) + held(at)[0] == n + 1)
            for number in range(5):
                await until(lambda n=number: len(gate.asked) == n + 1)
                gate.passes.release()
            assert [(await client.response()).status for client in asking] == [200] * 5
            return gate.asked

    assert run(main()) == list("01234")


def test_beyond_the_bounds_a_model_that_no_living_replica_serves_is_a_503():
    async def main():
        async with bench(answer_json, answer_json, models=[("a",), ("b",)]) as at:
            await at.fakes[0].__aexit__()
            await until(lambda: at.router.membership[0].state == "unreachable")
            return await at.client.post(CHAT, chat(model="a"))

    response = run(main())
    assert (response.status, response.json["error"]["code"]) == (503, "model_unavailable")
    assert response.headers["retry-after"] == "1"
