"""Rows as lines of a file, and as columns."""

from __future__ import annotations

import pytest

from pointsman.bench.client.figures import seen_of
from pointsman.bench.client.rows import Row, read_rows, write_rows
from pointsman.core.errors import InputError
from pointsman.metrics.latency import FAILED, FINISHED, NO_REPLICA

WELL = Row(
    number=0, request_id="a-0", asked_prompt_tokens=10, asked_output_tokens=3, intended_ms=5.0,
    client_queue_ms=1.0, sent_ms=8.0, first_token_ms=20.0, last_token_ms=30.0, end_ms=31.0,
    prompt_tokens=11, output_tokens=3, tokens_from="usage", status="ok", replica="http://b",
)  # fmt: skip
LOST = Row(
    number=1, request_id="a-1", asked_prompt_tokens=7, asked_output_tokens=3, intended_ms=6.0,
    end_ms=40.0, status="error", error="lost",
)  # fmt: skip


def test_the_schedule_delay_is_what_neither_cap_nor_connection_made():
    assert WELL.schedule_delay_ms == 2.0
    assert LOST.schedule_delay_ms is None


def test_rows_come_back_from_their_file(tmp_path):
    path = tmp_path / "rows.jsonl"
    write_rows([WELL, LOST], path)
    assert len(path.read_text().splitlines()) == 2
    assert read_rows(path) == [WELL, LOST]


def test_a_line_that_is_no_row_is_named(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"number": "one"}\n')
    with pytest.raises(InputError, match=r"rows.jsonl line 1: .*expected a client's row"):
        read_rows(path)


def test_rows_are_columns_of_what_every_figure_comes_from():
    seen = seen_of([WELL, LOST], ["http://a", "http://b"])
    answers = seen.answers
    assert answers.status.tolist() == [FINISHED, FAILED]
    assert answers.replica.tolist() == [1, NO_REPLICA]
    assert answers.finish_ms.tolist() == [30.0, 40.0]  # the last token; when it was lost
    assert answers.prompt_tokens.tolist() == [11, 7]  # as counted, else as asked
    assert seen.ttft_from_send_ms[0] == 12.0
