import pytest

from pointsman.dispatch.record import Usage
from pointsman.router.usage import TAIL_BYTES, ResponseTap, prefill_ms_of

CHUNK = b'data: {"choices":[{"text":"a"}],"usage":null}\n\n'
DONE = b"data: [DONE]\n\n"


def usage_of(*pieces: bytes, stream: bool = True) -> Usage:
    tap = ResponseTap(stream=stream)
    for piece in pieces:
        tap.feed(piece)
    return tap.usage()


# Shapes of llama.cpp and vLLM, shortened.
ON_THE_LAST_CHOICE = (
    b'data: {"choices":[{"text":"","finish_reason":"length"}],"usage":{"completion_tokens":4,'
    b'"prompt_tokens":20,"total_tokens":24,"prompt_tokens_details":{"cached_tokens":19}},'
    b'"timings":{"cache_n":19,"prompt_n":1,"predicted_n":4}}\n\n'
)
WITHOUT_CHOICES = (
    b'data: {"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":4,'
    b'"prompt_tokens_details":{"cached_tokens":19}}}\n\n'
)
TIMINGS_ONLY = (
    b'data: {"choices":[{"delta":{}}],"timings":{"cache_n":19,"prompt_n":1,"predicted_n":4}}\n\n'
)


@pytest.mark.parametrize("last", [ON_THE_LAST_CHOICE, WITHOUT_CHOICES, TIMINGS_ONLY])
def test_counts_at_the_end_of_a_stream_are_found_wherever_an_engine_puts_them(last):
    assert usage_of(CHUNK, CHUNK, last, DONE) == Usage(20, 4, 19)


def test_counts_are_found_whatever_the_cuts_between_reads():
    stream = CHUNK * 3 + WITHOUT_CHOICES + DONE
    for size in (1, 2, 7, 64):
        pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
        assert usage_of(*pieces) == Usage(20, 4, 19)


def test_counts_are_found_after_a_long_stream_that_is_not_kept():
    tap = ResponseTap(stream=True)
    for _ in range(5000):
        tap.feed(CHUNK)
    tap.feed(WITHOUT_CHOICES + DONE)
    assert tap.usage() == Usage(20, 4, 19)
    assert len(tap._kept) <= 2 * TAIL_BYTES


def test_running_counts_are_read_at_their_last():
    running = b'data: {"choices":[{}],"usage":{"prompt_tokens":20,"completion_tokens":%d}}\n\n'
    assert usage_of(*(running % count for count in range(5)), DONE) == Usage(20, 4, None)


def test_a_whole_answer_gives_its_counts():
    body = b'{"choices":[],"usage":{"prompt_tokens":20,"completion_tokens":4}}'
    assert usage_of(body[:9], body[9:], stream=False) == Usage(20, 4, None)


@pytest.mark.parametrize("body", [b"", b"plain text", b"[1]", b'{"usage":"high"}', b"\x1f\x8b"])
def test_answers_without_counts_give_none(body):
    assert usage_of(body, stream=False) == Usage()
    assert usage_of(b"data: " + body + b"\n\n") == Usage()


@pytest.mark.parametrize("count", [b"-1", b"2147483648", b"1" + b"0" * 26])
def test_counts_that_no_request_can_have_are_unknown(count):
    body = b'{"usage":{"prompt_tokens":%b,"completion_tokens":4}}' % count
    assert usage_of(body, stream=False) == Usage(None, 4, None)
    body = b'{"timings":{"prompt_n":%b,"predicted_n":4,"cache_n":9}}' % count
    assert usage_of(body, stream=False).prompt_tokens is None


def test_an_answer_nested_without_end_gives_no_counts():
    body = b'{"a":' + b"[" * 20_000 + b"]" * 20_000 + b',"usage":{"prompt_tokens":1}}'
    assert usage_of(body, stream=False) == Usage()


def test_an_answer_over_a_megabyte_is_not_read():
    body = b'{"a":"' + b"x" * (1 << 20) + b'","usage":{"prompt_tokens":1}}'
    assert usage_of(body[: 1 << 19], body[1 << 19 :], stream=False) == Usage()


@pytest.mark.parametrize(
    ("event", "is_token"),
    [
        (b'data: {"choices":[{"delta":{"role":"assistant","content":null}}]}', False),
        (b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}', False),
        (b'data: {"choices":[{"delta":{"content":"a"}}]}', True),
        (b'data: {"choices":[{"delta":{"reasoning_content":"a"}}]}', True),
        (b'data: {"choices":[{"text": "a"}]}', True),
        (b'data: {"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{"}}]}}]}', True),
        (b": a comment", False),
    ],
)
def test_a_chunk_with_only_a_role_is_not_the_first_token(event, is_token):
    tap = ResponseTap(stream=True)
    tap.feed(event + b"\n\n")
    assert tap.saw_token is is_token


# What vLLM 0.32 says in a stream of 200 when its engine dies, shortened.
ENGINE_DIED = b'data: {"error": {"message": "EngineCore encountered an issue.", "code": 500}}\n\n'


def tells_an_error(*pieces: bytes, stream: bool = True) -> bool:
    tap = ResponseTap(stream=stream)
    for piece in pieces:
        tap.feed(piece)
    return tap.tells_an_error


@pytest.mark.parametrize(
    "event",
    [ENGINE_DIED, b'data:{"error":{"message":"x"}}\r\n\r\n', b'data: {"error": "overloaded"}\n\n'],
)
def test_an_event_that_is_an_error_is_seen_before_done(event):
    stream = CHUNK * 3 + event + DONE
    assert tells_an_error(stream)
    assert tells_an_error(*(stream[at : at + 7] for at in range(0, len(stream), 7)))


def test_what_a_model_writes_about_errors_is_no_error():
    written = b'data: {"choices":[{"text":"data: {\\"error\\": {}}"}],"error":null}\n\n'
    assert not tells_an_error(CHUNK, written, DONE)
    assert not tells_an_error(b'data: {"error":null,"choices":[]}\n\n', DONE)
    assert not tells_an_error(ENGINE_DIED, stream=False)


@pytest.mark.parametrize(
    ("answer", "took_ms"),
    [
        (b'{"choices":[],"timings":{"prompt_n":1263,"prompt_ms":435.102}}', 435.102),
        (b'{"choices":[],"kv_transfer_params":{}}', None),  # vLLM
        (b'{"timings":{"prompt_ms":-1.0}}', None),
        (b"no JSON", None),
    ],
)
def test_how_long_a_prefill_took_is_what_llamacpp_says(answer, took_ms):
    assert prefill_ms_of(answer) == took_ms
