"""An answer's tokens and instants, out of the bytes of its body."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.bench.client.answer import Answer
from tests.bench.client.stand_in import DONE, counts, delta, event, text, usage

STREAMS = Path(__file__).parent / "streams"


def read(*pieces: tuple[float, bytes]) -> Answer:
    """Pieces with the instant of their read."""
    answer = Answer(is_stream=True)
    for at_ms, piece in pieces:
        answer.feed(piece, at_ms)
    answer.end(pieces[-1][0])
    return answer


def recorded(name: str) -> Answer:
    """A recorded stream, an event a millisecond."""
    events = (STREAMS / f"{name}.txt").read_bytes().split(b"\n\n")
    return read(*((float(at), each + b"\n\n") for at, each in enumerate(events) if each))


# What engines send: six tokens, of a prompt of 5 (15 with the chat's template).


@pytest.mark.parametrize(
    ("name", "prompt"),
    [
        ("llamacpp_completions", 5),
        ("llamacpp_completions_timings", 5),
        ("llamacpp_chat", 15),
        ("llamacpp_chat_timings", 15),
        ("vllm_completions", 5),
        ("vllm_completions_continuous", 5),
        ("vllm_chat", 15),
        ("vllm_chat_continuous", 15),
        ("sglang_completions_by_its_source", 5),
        ("sglang_chat_by_its_source", 15),
    ],
)
def test_streams_of_each_engine_parse_to_the_same_row(name, prompt):
    answer = recorded(name)
    assert (answer.prompt_tokens, answer.output_tokens) == (prompt, 6)
    assert answer.tokens_from == "usage"
    assert (answer.chunks, answer.finish_reason) == (6, "length")
    first = 1.0 if "chat" in name else 0.0  # behind the role
    assert (answer.first_token_ms, answer.first_text_ms) == (first, first)
    assert list(answer.gaps_ms) == [1.0] * 5
    assert answer.is_complete
    assert answer.error is None


@pytest.mark.parametrize(
    "name",
    [
        "llamacpp_completions_timings",
        "llamacpp_chat_timings",
        "vllm_completions_continuous",
        "vllm_chat_continuous",
        "sglang_completions_by_its_source",
    ],
)
def test_where_chunks_say_how_many_tokens_there_are_each_is_worth_what_it_brought(name):
    answer = recorded(name)
    assert answer.has_running_counts
    assert answer.first_chunk_tokens == 1
    assert list(answer.gap_tokens) == [1] * 5


@pytest.mark.parametrize("name", ["llamacpp_completions", "llamacpp_chat", "vllm_chat"])
def test_a_total_at_the_end_is_no_count_of_a_chunk(name):
    answer = recorded(name)
    assert not answer.has_running_counts
    assert answer.first_chunk_tokens is None


# Tokens.


def test_four_tokens_a_chunk_are_four_gaps_of_a_quarter():
    chunks = [(100.0 + 40.0 * k, text("abcd", usage=counts(10, 4 * (k + 1)))) for k in range(4)]
    answer = read(*chunks, (230.0, usage(10, 16) + DONE))
    assert list(answer.gaps_ms) == [40.0] * 3
    assert list(answer.gap_tokens) == [4] * 3
    assert answer.output_tokens == 16


def test_the_tokens_of_the_first_chunk_are_told():
    answer = read(
        (50.0, text("abcde", usage=counts(10, 5))), (60.0, text("f", usage=counts(10, 6)))
    )
    assert answer.first_chunk_tokens == 5


def test_token_ids_count_where_there_are_any():
    chunks = [
        event({"choices": [{"text": "ab", "token_ids": [7, 8]}]}),
        event({"choices": [{"text": "c", "token_ids": [9], "finish_reason": "stop"}]}),
    ]
    answer = read((1.0, chunks[0]), (3.0, chunks[1]))
    assert (answer.first_chunk_tokens, list(answer.gap_tokens)) == (2, [1])


def test_a_chunk_whose_count_grows_without_text_is_a_token():
    """Half a character: vLLM shows no text until the other half has come."""
    answer = read(
        (1.0, text("", usage=counts(3, 1))), (2.0, text("é", "length", usage=counts(3, 2)))
    )
    assert (answer.chunks, answer.first_token_ms, answer.first_text_ms) == (2, 1.0, 2.0)


def test_a_role_is_no_token_and_reasoning_is_one():
    answer = read(
        (10.0, delta(role="assistant", content="")),
        (30.0, delta(reasoning_content="well")),
        (40.0, delta(reasoning=" then")),
        (70.0, delta(content="42")),
    )
    assert answer.first_token_ms == 30.0
    assert answer.first_text_ms == 70.0
    assert answer.chunks == 3


def test_what_a_tool_is_called_with_is_a_token():
    calls = [{"index": 0, "function": {"name": "add", "arguments": ""}}]
    answer = read((10.0, delta(role="assistant", content=None)), (20.0, delta(tool_calls=calls)))
    assert answer.first_token_ms == answer.first_text_ms == 20.0


# Counts.


@pytest.mark.parametrize(
    "end",
    [
        text("", "length", usage=counts(10, 2, 8)),
        text("", "length") + usage(10, 2, 8),
        text("", "length", timings={"prompt_n": 2, "cache_n": 8, "predicted_n": 2}),
    ],
    ids=["on the last chunk with choices", "on one without", "llama.cpp's timings alone"],
)
def test_counts_are_found_wherever_they_stand(end):
    answer = read((1.0, text("a")), (2.0, text("b")), (3.0, end + DONE))
    assert (answer.prompt_tokens, answer.output_tokens, answer.cached_tokens) == (10, 2, 8)


def test_without_usage_chunks_are_counted_and_said_to_be():
    answer = read((1.0, text("a")), (2.0, text("b", "stop")), (3.0, DONE))
    assert (answer.output_tokens, answer.tokens_from, answer.prompt_tokens) == (2, "chunks", None)


def test_the_times_that_llamacpp_tells_are_those_of_its_last_chunk():
    told = [
        {"prompt_ms": 400.5, "predicted_ms": ms, "predicted_n": n}
        for n, ms in [(1, 0.001), (2, 9.5)]
    ]
    answer = read((1.0, text("a", timings=told[0])), (2.0, text("b", timings=told[1])), (3.0, DONE))
    assert (answer.engine_prefill_ms, answer.engine_decode_ms) == (400.5, 9.5)


def test_an_engine_that_tells_no_times_has_none():
    answer = read((1.0, text("a")), (2.0, usage(10, 1) + DONE))
    assert (answer.engine_prefill_ms, answer.engine_decode_ms) == (None, None)


def test_usage_wins_over_what_chunks_would_add_up_to():
    pieces = [(float(k), text("x")) for k in range(201)]
    answer = read(*pieces, (300.0, usage(10, 256) + DONE))
    assert (answer.chunks, answer.output_tokens) == (201, 256)


# Reads.


def test_an_answer_that_comes_in_one_read_is_coalesced():
    at_once = b"".join(text("x") for _ in range(40)) + usage(10, 40) + DONE
    answer = read((7.0, at_once))
    assert answer.is_coalesced
    assert answer.output_tokens == 40


def test_an_answer_of_one_token_is_not_coalesced():
    assert not read((7.0, text("x", "length") + usage(10, 1) + DONE)).is_coalesced


BODY = (
    b": a comment\n\n"
    + delta(role="assistant", content="")
    + delta(content="one")
    + b": ping\n\n"
    + delta(content=" two", finish="stop")
    + usage(12, 2, 4)
    + DONE
)


@given(
    st.lists(st.integers(1, len(BODY) - 1), max_size=12),
    st.sampled_from([b"\n", b"\r\n", b"\r"]),
)
def test_wherever_a_body_is_cut_and_however_lines_end_it_says_the_same(cuts, line_end):
    body = BODY.replace(b"\n", line_end)
    places = [0, *sorted(set(cuts)), len(body)]
    answer = Answer(is_stream=True)
    for start, end in pairwise(places):
        answer.feed(body[start:end], 5.0)
    answer.end(5.0)
    assert (answer.chunks, answer.output_tokens, answer.cached_tokens) == (2, 2, 4)
    assert answer.is_done
    assert "".join(answer.texts) == "one two"


def test_an_event_may_have_its_data_on_several_lines():
    answer = read((1.0, b'data: {"choices":\ndata:[{"text":"a","finish_reason":"stop"}]}\n\n'))
    assert answer.finish_reason == "stop"


# Ends.


def test_a_stream_without_done_and_finish_reason_is_not_complete():
    assert not read((1.0, text("a")), (2.0, text("b"))).is_complete


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_a_generation_that_the_engine_gave_up_is_not_complete(reason):
    assert not read((1.0, text("a")), (2.0, text("", reason)), (3.0, DONE)).is_complete


def test_an_error_within_a_stream_is_kept():
    error = event({"error": {"message": "EngineCore died", "code": 500}})
    assert read((1.0, text("a")), (2.0, error + DONE)).error == "EngineCore died"


def test_an_event_that_is_no_json_is_an_error():
    assert "cannot be read" in read((1.0, b"data: {oops\n\n")).error


def test_a_whole_answer_has_counts_and_no_instants_of_tokens():
    answer = Answer(is_stream=False)
    whole = event(
        {
            "choices": [{"message": {"content": "hi"}, "finish_reason": "stop"}],
            "usage": counts(9, 3),
        }
    )[6:]
    answer.feed(whole, 4.0)
    answer.end(4.0)
    assert (answer.output_tokens, answer.finish_reason, answer.first_token_ms) == (3, "stop", None)
