import pytest

pytest.importorskip("google.protobuf")

from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman.dispatch.log_file import read_log
from pointsman.picker.wire import (
    BUFFERED,
    FULL_DUPLEX_STREAMED,
    NONE,
    STREAMED,
    message,
)
from pointsman.replay.replay import replay_same
from pointsman.router.settings import Probing
from tests.picker.conversations import MOST_BYTES, desk, told
from tests.picker.envoy_messages import (
    answer_body,
    answer_head,
    begun,
    body,
    destinations,
    head,
    headers_set,
    refused,
    trailers,
)
from tests.router.fake_replicas import DONE, PIECES, USAGE, FakeReplica
from tests.router.routers import chat, completion, run, until

# Nobody listens there; probes are far apart, so that all count as up.
ONE, TWO, THREE = (f"127.0.0.{number}:9" for number in (1, 2, 3))
RARE = Probing(interval_ms=3.6e6, slow_start_ms=0.0)
URLS = [f"http://{endpoint}" for endpoint in (ONE, TWO, THREE)]
PIECE = 63_488  # 62 KiB


def conversing(main, urls=URLS, **given):
    """Run ``main(desk)``; the policy takes the replica with the fewest requests. Of equals it takes
    the next one in turn: the first for the first request, the last for the second."""

    async def whole():
        async with desk(urls, "least_requests", probing=RARE, **given) as at:
            return await main(at)

    return run(whole())


# Where a request goes.


def test_a_whole_body_is_answered_with_the_choice_and_who_comes_next():
    async def main(at):
        talk = at.conversation()
        (reply,) = await told(talk, body(completion(), begun()))
        flying = at.in_flight
        talk.end()
        return reply, flying

    reply, flying = conversing(main)
    assert reply.WhichOneof("response") == "request_body"
    assert destinations(reply) == [ONE, THREE]
    assert flying == [1, 0, 0]


@pytest.mark.parametrize(("retries", "count"), [(0, 1), (1, 2), (2, 3), (9, 3)])
def test_there_are_as_many_fallbacks_as_retries_and_replicas(retries, count):
    async def main(at):
        talk = at.conversation()
        (reply,) = await told(talk, body(completion(), begun()))
        talk.end()
        return destinations(reply)

    found = conversing(main, retries=retries)
    assert len(found) == len(set(found)) == count


def test_header_and_metadata_say_the_same_where_the_head_is_sent():
    async def main(at):
        talk = at.conversation()
        replies = await told(talk, head(begun()), body(completion()))
        talk.end()
        return replies

    first, second = conversing(main)
    assert first.WhichOneof("response") == "request_headers"
    mutation = second.request_body.response.header_mutation
    said = headers_set(mutation)["x-gateway-destination-endpoint"]
    assert said.split(",") == destinations(second) == [ONE, THREE]


def test_a_head_in_duplex_waits_for_its_body_which_comes_back_as_it_was():
    data = b'{"prompt": "' + b"x" * (MOST_BYTES - 14) + b'"}'

    async def main(at):
        talk = at.conversation()
        before = await told(talk, head(begun(FULL_DUPLEX_STREAMED)), body(data[:9], is_end=False))
        after = await told(talk, body(data[9:]))
        talk.end()
        return before, after

    before, (first, *pieces) = conversing(main)
    assert before == []
    assert destinations(first) == [ONE, THREE]
    assert first.WhichOneof("response") == "request_headers"
    sent = [each.request_body.response.body_mutation.streamed_response for each in pieces]
    assert [len(each.body) for each in sent] == [PIECE, MOST_BYTES - PIECE]
    assert b"".join(each.body for each in sent) == data
    assert [each.end_of_stream for each in sent] == [False, True]


def test_trailers_end_a_body_that_has_not_said_so():
    async def main(at):
        talk = at.conversation()
        first = head(begun(FULL_DUPLEX_STREAMED))
        replies = await told(talk, first, body(completion(), is_end=False), trailers())
        talk.end()
        return replies

    kinds = [each.WhichOneof("response") for each in conversing(main)]
    assert kinds == ["request_headers", "request_body", "request_trailers"]


def test_duplex_without_heads_tells_the_pick_with_the_first_piece():
    async def main(at):
        talk = at.conversation()
        (reply,) = await told(talk, body(completion(), begun(FULL_DUPLEX_STREAMED)))
        talk.end()
        return reply

    reply = conversing(main)
    assert destinations(reply) == [ONE, THREE]
    assert reply.request_body.response.body_mutation.streamed_response.end_of_stream


def test_a_request_without_a_body_is_picked_for_at_its_head():
    async def main(at):
        talk = at.conversation()
        (reply,) = await told(talk, head(begun(), is_end=True, path="/v1/models"))
        talk.end()
        return reply

    assert destinations(conversing(main)) == [ONE, THREE]


def test_a_gateway_that_tells_no_path_is_read_by_the_body(tmp_path):
    log = tmp_path / "log"

    async def main(at):
        for asked in (chat(), completion()):
            talk = at.conversation()
            first = message("ProcessingRequest")()
            await told(talk, body(asked, first))
            talk.end()

    conversing(main, log=log)
    paths = [choice.path for choice in read_log(log).choices]
    assert paths == ["/v1/chat/completions", "/v1/completions"]


def test_sessions_and_ids_come_from_attributes_too(tmp_path):
    log = tmp_path / "log"

    async def main(at):
        first = begun()
        fields = first.attributes["envoy.filters.http.ext_proc"].fields
        fields["request.id"].string_value = "the-id"
        fields["request.headers['x-session-id']"].string_value = "S"
        talk = at.conversation()
        await told(talk, body(completion(), first))
        talk.end()

    conversing(main, log=log)
    (choice,) = read_log(log).choices
    assert choice.request_id == "the-id"
    assert choice.session is not None


# The subset that a gateway may set.


def test_the_subset_binds_the_choice_and_its_fallbacks():
    async def main(at):
        found = []
        for _ in range(4):
            talk = at.conversation()
            (reply,) = await told(talk, body(completion(), begun(subset=[TWO, THREE])))
            found.append(set(destinations(reply)))
            talk.end()
        return found

    assert conversing(main, retries=5) == [{TWO, THREE}] * 4


@pytest.mark.parametrize("subset", [[], ["10.9.9.9:1"]])
def test_a_subset_without_a_replica_of_ours_is_a_503(subset):
    async def main(at):
        talk = at.conversation()
        (reply,) = await told(talk, body(completion(), begun(subset=subset)))
        return reply, talk.is_over, at.in_flight

    reply, is_over, flying = conversing(main)
    assert refused(reply) == (503, "no_replica_ready")
    assert is_over
    assert flying == [0, 0, 0]


def test_a_subset_that_is_one_text_with_commas_binds_too():
    async def main(at):
        first = begun()
        spaces = first.metadata_context.filter_metadata
        told_subset = spaces["envoy.lb.subset_hint"].fields["x-gateway-destination-endpoint-subset"]
        told_subset.string_value = f"{THREE}, {TWO}"
        talk = at.conversation()
        (reply,) = await told(talk, body(completion(), first))
        talk.end()
        return destinations(reply)

    assert set(conversing(main)) == {TWO, THREE}


# Requests that get no endpoint.


def test_none_ready_is_a_503_that_says_when_to_come_back():
    async def main(at):
        for replica in at.router.membership.members:
            replica.health.cannot_be_reached("nobody listens")
        talk = at.conversation()
        (reply,) = await told(talk, body(completion(), begun()))
        return reply

    reply = conversing(main)
    assert refused(reply) == (503, "no_replica_ready")
    assert headers_set(reply.immediate_response.headers)["retry-after"] == "3600"


def test_full_replicas_are_a_429():
    async def main(at):
        talks = [at.conversation() for _ in range(4)]
        replies = [await told(talk, body(completion(), begun())) for talk in talks]
        for talk in talks:
            talk.end()
        return replies

    *good, (reply,) = conversing(main, max_in_flight=1)
    assert [destinations(each[0])[0] for each in good] == [ONE, THREE, TWO]
    assert refused(reply) == (429, "overloaded")


def test_a_refusal_stands_in_the_log(tmp_path):
    log = tmp_path / "log"

    async def main(at):
        talk = at.conversation()
        await told(talk, body(completion(), begun(subset=[])))

    conversing(main, log=log)
    assert [each.cause for each in read_log(log).unplaced] == ["no_replica_ready"]


@pytest.mark.parametrize("mode", [BUFFERED, FULL_DUPLEX_STREAMED])
def test_a_body_above_the_limit_is_a_413(mode):
    async def main(at):
        talk = at.conversation()
        half = b"x" * (MOST_BYTES // 2)
        pieces = [half + half + b"x"] if mode == BUFFERED else [half, half, b"x"]
        messages = [body(each, is_end=False) for each in pieces]
        *others, last = await told(talk, head(begun(mode)), *messages)
        return others, last

    _, last = conversing(main)
    assert refused(last) == (413, "body_too_large")


def test_a_body_at_the_limit_is_picked_for():
    async def main(at):
        talk = at.conversation()
        data = b'{"prompt": "' + b"x" * (MOST_BYTES - 14) + b'"}'
        (reply,) = await told(talk, body(data, begun()))
        talk.end()
        return len(data), destinations(reply)

    assert conversing(main) == (MOST_BYTES, [ONE, THREE])


def test_a_body_that_cannot_be_read_is_a_400():
    async def main(at):
        talk = at.conversation()
        (reply,) = await told(talk, body(b"{", begun()))
        return reply

    assert refused(conversing(main)) == (400, "invalid_body")


def test_a_request_without_a_model_goes_to_any_replica():
    async def main(at):
        talk = at.conversation()
        (reply,) = await told(talk, body({"prompt": "x"}, begun()))
        talk.end()
        return destinations(reply)

    models = [("a",), ("b",), ("c",)]
    assert conversing(main, models=models) == [ONE, THREE]


def test_a_model_goes_to_those_that_serve_it_and_an_unknown_one_is_a_404():
    async def main(at):
        replies = []
        for model in ("b", "nobody's"):
            talk = at.conversation()
            replies += await told(talk, body(completion(model=model), begun()))
            talk.end()
        return replies

    known, unknown = conversing(main, models=[("a",), ("b",), ("c",)])
    assert destinations(known) == [TWO]
    assert refused(unknown) == (404, "model_not_found")


@pytest.mark.parametrize("mode", [NONE, STREAMED])
def test_bodies_in_a_mode_that_cannot_be_picked_for_are_refused(mode):
    async def main(at):
        talk = at.conversation()
        (reply,) = await told(talk, head(begun(mode)))
        return reply

    reply = conversing(main)
    assert refused(reply) == (500, "unfit_body_mode")
    assert b"BUFFERED or FULL_DUPLEX_STREAMED" in reply.immediate_response.body


# What becomes of it.


def outcomes_of(log):
    return [(each.status, each.http_status, each.error) for each in read_log(log).outcomes.values()]


def after(*messages, log=None, answer_mode=NONE, urls=URLS):
    """What comes of a request that was picked for the first replica, after these messages."""

    async def main(at):
        talk = at.conversation()
        await told(talk, body(completion(stream=True), begun(answer_mode=answer_mode)), *messages)
        flying = at.in_flight
        talk.end()
        talk.end()  # once counts
        return flying, at.in_flight, at.complaints

    return conversing(main, urls=urls, log=log)


@pytest.mark.parametrize(
    ("status", "word"), [(200, "ok"), (404, "error"), (500, "error"), (503, "error")]
)
def test_an_answer_that_is_not_read_counts_by_its_status(tmp_path, status, word):
    log = tmp_path / "log"
    assert after(answer_head(status, ONE), log=log)[:2] == ([1, 0, 0], [0, 0, 0])
    assert outcomes_of(log) == [(word, status, None)]


def test_a_client_that_leaves_before_the_answer_is_cancelled(tmp_path):
    log = tmp_path / "log"
    after(log=log)
    assert outcomes_of(log) == [("cancelled", None, None)]


def test_where_no_answers_are_seen_none_is_taken_for_one_that_never_came(tmp_path):
    log = tmp_path / "log"

    async def main(at):
        talk = at.conversation(sees_answer=False)
        await told(talk, body(completion(), begun()))
        talk.end()

    conversing(main, log=log)
    assert outcomes_of(log) == [("ok", None, None)]


def test_an_answer_of_envoys_own_is_an_error_and_no_replicas(tmp_path):
    log = tmp_path / "log"
    after(answer_head(503, ONE, "upstream_reset_before_response_started{x}"), log=log)
    assert outcomes_of(log) == [("error", 503, "replica_unreachable")]


def test_who_served_instead_has_the_account_from_then_on(tmp_path):
    log = tmp_path / "log"
    flying, at_end, _ = after(answer_head(200, TWO), log=log)
    assert (flying, at_end) == ([0, 1, 0], [0, 0, 0])
    assert outcomes_of(log) == [("retried", None, "served_elsewhere"), ("ok", 200, None)]
    choices = [(each.replica, each.attempt) for each in read_log(log).choices]
    assert choices == [(0, 1), (1, 2)]


def test_what_was_moved_replays_to_the_same_choices(tmp_path):
    log = tmp_path / "log"
    after(answer_head(200, TWO), log=log)
    assert replay_same(read_log(log)).differences == []


def test_a_stranger_that_served_is_complained_of_once(tmp_path):
    log = tmp_path / "log"

    async def main(at):
        for _ in range(2):
            talk = at.conversation()
            await told(talk, body(completion(), begun()), answer_head(200, "10.9.9.9:1"))
            talk.end()
        return at.complaints

    complaints = conversing(main, log=log)
    assert len(complaints) == 1
    assert "10.9.9.9:1, which is no replica of this picker" in complaints[0]
    assert outcomes_of(log) == [("retried", None, "served_elsewhere")] * 2


def test_who_was_passed_over_is_looked_at_and_found_dead():
    async def main():
        async with (
            FakeReplica() as fake,
            desk([URLS[0], fake.url], "least_requests", probing=RARE) as at,
        ):
            talk = at.conversation()
            await told(talk, body(completion(), begun()))
            await told(talk, answer_head(200, fake.url.removeprefix("http://")))
            states = at.router.membership.states
            await until(lambda: states()[0] == "unreachable")
            talk.end()
            return states()[1]

    assert run(main()) == "up"


def test_an_answer_says_where_it_comes_from_and_why():
    async def main(at):
        talk = at.conversation()
        await told(talk, body(completion(), begun()))
        (reply,) = await told(talk, answer_head(200, ONE))
        talk.end()
        return headers_set(reply.response_headers.response.header_mutation)

    said = conversing(main)
    assert said["x-pointsman-replica"] == URLS[0]
    assert said["x-pointsman-reason"] == "fewest_requests"
    assert said["x-pointsman-policy"] == "least_requests"
    assert float(said["x-pointsman-expected-wait-ms"]) == 0.0
    assert len(said["x-pointsman-request-id"]) == 32


STREAM = answer_head(200, ONE, kind="text/event-stream")


def test_an_answer_that_is_read_tells_first_token_and_counts(tmp_path):
    log = tmp_path / "log"
    pieces = [answer_body(piece) for piece in (*PIECES, USAGE, DONE)]
    last = answer_body(b"", is_end=True)
    after(STREAM, *pieces, last, log=log, answer_mode=FULL_DUPLEX_STREAMED)
    (outcome,) = read_log(log).outcomes.values()
    assert outcome.status == "ok"
    assert outcome.first_token_ms is not None
    usage = outcome.usage
    assert (usage.prompt_tokens, usage.output_tokens, usage.cached_tokens) == (31, 8, 16)
    assert outcome.response_bytes == sum(map(len, (*PIECES, USAGE, DONE)))


def test_an_answer_that_is_read_comes_back_as_it_came():
    async def main(at):
        talk = at.conversation()
        await told(talk, body(completion(), begun(answer_mode=FULL_DUPLEX_STREAMED)), STREAM)
        replies = await told(talk, answer_body(PIECES[0]), answer_body(b"", is_end=True))
        return [
            each.response_body.response.body_mutation.streamed_response for each in replies
        ], at.in_flight

    (piece, last), flying = conversing(main)
    assert (piece.body, piece.end_of_stream) == (PIECES[0], False)
    assert (last.body, last.end_of_stream) == (b"", True)
    assert flying == [0, 0, 0]  # it has ended, whenever the stream of messages ends


def test_an_answer_that_is_read_and_has_no_end_is_truncated(tmp_path):
    log = tmp_path / "log"
    parts = STREAM, answer_body(PIECES[0])
    after(*parts, log=log, answer_mode=FULL_DUPLEX_STREAMED)
    assert outcomes_of(log) == [("truncated", 200, None)]


def test_a_stream_that_ends_in_an_error_event_is_truncated(tmp_path):
    log = tmp_path / "log"
    error = answer_body(b'data: {"error": {"message": "the engine died", "code": 500}}\n\n' + DONE)
    parts = STREAM, answer_body(PIECES[0]), error, answer_body(b"", is_end=True)
    after(*parts, log=log, answer_mode=FULL_DUPLEX_STREAMED)
    assert outcomes_of(log) == [("truncated", 200, "replica_error")]


def test_errors_in_a_row_set_a_replica_aside_while_another_answers_well():
    async def main(at):
        for number in range(12):
            talk = at.conversation()
            asked = completion(f"prompt {number}")
            (reply,) = await told(talk, body(asked, begun(subset=[ONE, TWO])))
            where = destinations(reply)[0]
            await told(talk, answer_head(500 if where == ONE else 200, where))
            talk.end()
        return at.router.membership.states()

    assert conversing(main)[0] == "set_aside"


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_whatever_comes_and_whenever_it_ends_nothing_stays_in_flight(data):
    parts = st.one_of(
        st.sampled_from([ONE, TWO, "10.9.9.9:1", None]).flatmap(
            lambda served: st.sampled_from([200, 500, 503]).map(
                lambda status: answer_head(status, served)
            )
        ),
        st.binary(max_size=9).flatmap(
            lambda piece: st.booleans().map(lambda is_end: answer_body(piece, is_end=is_end))
        ),
        st.builds(trailers),
    )
    modes = st.sampled_from([NONE, STREAMED, FULL_DUPLEX_STREAMED])
    request_mode = data.draw(st.sampled_from([BUFFERED, FULL_DUPLEX_STREAMED]))
    messages = data.draw(st.lists(parts, max_size=8))

    async def main(at):
        talk = at.conversation()
        await told(talk, body(completion(), begun(request_mode, data.draw(modes))), *messages)
        talk.end()
        return at.in_flight

    assert conversing(main) == [0, 0, 0]
