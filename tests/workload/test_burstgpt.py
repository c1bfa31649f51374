from __future__ import annotations

import pytest

from tests.workload.refusals import refusal

HEADER = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type"
)
TALK = "19440110.0,a-1,43,GPT-4,906,446,1352,Conversation log"
CALL = "19440161.5,,2,ChatGPT,36,29,65,API log"
FAILED = "19440170.0,a-1,1,ChatGPT,36,0,36,Conversation log"


def test_timestamps_are_seconds_and_rows_of_every_model_stay(read):
    workload = read(HEADER, TALK, CALL)
    assert workload.arrival_ms.tolist() == [19_440_110_000.0, 19_440_161_500.0]
    assert workload.prompt_tokens.tolist() == [906, 36]
    assert workload.output_tokens.tolist() == [446, 29]
    assert workload.source.format == "burstgpt"


def test_calls_without_a_session_have_none(read):
    workload = read(HEADER, CALL, TALK)
    assert workload.session.tolist() == [0, -1]
    assert workload.names.sessions == ("a-1",)


def test_the_older_files_have_neither_sessions_nor_elapsed_times(read):
    header = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
    workload = read(header, "5,ChatGPT,472,18,490,Conversation log")
    assert (workload.arrival_ms.tolist(), workload.session.tolist()) == ([5000.0], [-1])


def test_rows_far_apart_are_taken_since_the_layout_has_one_unit(read):
    rows = [f"{100 * i},a,1,GPT-4,5,5,10,API log" for i in range(120)]
    assert read(HEADER, *rows).span_ms == 119 * 100_000


@pytest.mark.parametrize("skip_bad", [False, True])
def test_a_failed_request_is_refused_until_it_is_said_what_becomes_of_it(read, skip_bad):
    assert refusal(read, HEADER, TALK, FAILED, skip_bad=skip_bad) == (
        "line 3: Response tokens is 0, a request that failed;"
        " expected --failed-requests keep (with no output) or omit (failed_requests in Python)"
    )


def test_failed_requests_are_kept_without_output_on_request(read):
    workload = read(HEADER, TALK, FAILED, failed_requests="keep")
    assert workload.output_tokens.tolist() == [446, 0]
    assert workload.source.failures_left_out == 0


def test_failed_requests_are_omitted_and_counted_on_request(read):
    workload = read(HEADER, FAILED, TALK, FAILED, CALL, failed_requests="omit", limit=2)
    assert workload.output_tokens.tolist() == [446, 29]
    assert workload.source.failures_left_out == 2
    assert workload.source.skipped_lines == 0


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("-5,a,1,GPT-4,1,1,2,API log", "Timestamp is '-5'; expected a time >= 0"),
        ("nan,a,1,GPT-4,1,1,2,API log", "Timestamp is 'nan'; expected a time >= 0"),
        ("1e300,a,1,GPT-4,1,1,2,API log", "Timestamp is 1e+300; expected a time of at most 1e+12"),
        ("5,a,1,GPT-4,1.5,1,2,API log", "Request tokens is '1.5'; expected an integer in"),
        ("5,a,1,GPT-4,1,-1,2,API log", "Response tokens is '-1'; expected an integer in"),
        ("5,a,1", "3 columns; expected 8"),
    ],
)
def test_a_bad_line_says_where_what_and_what_was_wanted(read, row, message):
    assert refusal(read, HEADER, TALK, row).startswith(f"line 3: {message}")


def test_another_column_is_refused(read):
    text = refusal(read, "Timestamp,Modell,Request tokens,Response tokens", "5,GPT-4,1,1")
    assert text.startswith("line 1: column 'Modell' is unknown;")
    assert text.endswith("did you mean Model?")


def test_a_missing_column_is_refused(read):
    text = refusal(read, "Request tokens,Response tokens", "1,1")
    assert text == "line 1: Timestamp is missing; expected it once in the header"
