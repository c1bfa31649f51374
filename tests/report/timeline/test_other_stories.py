"""What a load client measured and what a router logged, as trace files."""

from __future__ import annotations

import json

import pytest

from pointsman.bench.client.rows import Row
from pointsman.dispatch.log_file import read_log
from pointsman.report.timeline.file import write_timeline
from pointsman.report.timeline.measured import story_of_rows
from pointsman.report.timeline.recorded import story_of_log
from pointsman.report.timeline.story import Story
from tests.replay.test_replay import logged
from tests.report.timeline.trace_reader import Trace, read_trace


def row(number: int, **fields: object) -> Row:
    known = {
        "number": number,
        "request_id": f"q{number}",
        "asked_prompt_tokens": 8,
        "asked_output_tokens": 4,
        "intended_ms": 0.0,
        "status": "ok",
    }
    return Row(**{**known, **fields})


WHOLE = {"sent_ms": 1.5, "first_token_ms": 20.25, "last_token_ms": 50.0, "end_ms": 50.5}


def written(tmp_path, story: Story) -> Trace:
    write_timeline([story], tmp_path / "trace.json")
    return read_trace(tmp_path / "trace.json")


def test_a_measured_request_waits_in_the_client_then_for_its_first_token(tmp_path):
    rows = [row(0, **WHOLE, replica="http://a", reason="sticky_session", output_tokens=4)]
    trace = written(tmp_path, story_of_rows(rows, "group one"))
    assert trace.ms("in the client", "group one: router") == {"q0": (0.0, 1.5)}
    assert trace.ms("to first token", "group one: http://a") == {"q0": (1.5, 20.25)}
    assert trace.ms("decode", "group one: http://a") == {"q0": (20.25, 50.0)}
    ((_, reason, at_us, args),) = trace.instants
    assert (reason, float(at_us), args["replica"]) == ("sticky_session", 1500.0, "http://a")


def test_a_pairs_answer_is_on_two_replicas_with_an_arrow(tmp_path):
    rows = [row(0, **WHOLE, replica="http://d", prefill_replica="http://p")]
    trace = written(tmp_path, story_of_rows(rows, "pairs"))
    assert trace.ms("to first token", "pairs: http://p") == {"q0": (1.5, 20.25)}
    assert trace.ms("decode", "pairs: http://d") == {"q0": (20.25, 50.0)}
    ((tail, head),) = trace.arrows
    assert (tail.process, head.process) == ("pairs: http://p", "pairs: http://d")


def test_without_a_router_all_is_on_the_target(tmp_path):
    trace = written(tmp_path, story_of_rows([row(0, **WHOLE), row(1, **WHOLE)], "direct"))
    assert set(trace.ms("decode", "direct: the target")) == {"q0", "q1"}


def test_what_broke_off_is_cut_short_and_said(tmp_path):
    broken = row(0, sent_ms=1.0, first_token_ms=9.0, end_ms=30.0, status="truncated")
    unsent = row(1, intended_ms=5.0, status="cancelled")
    trace = written(tmp_path, story_of_rows([broken, unsent], "g"))
    assert trace.ms("cut short") == {"q0": (9.0, 30.0)}
    assert trace.ms("decode") == {}
    said = [(name, args["request"], float(at)) for _, name, at, args in trace.instants]
    assert said == [("cancelled", "q1", 5000.0), ("truncated", "q0", 30000.0)]


def test_warmup_is_marked(tmp_path):
    rows = [row(0, **WHOLE, is_warmup=True), row(1, **WHOLE)]
    trace = written(tmp_path, story_of_rows(rows, "g"))
    (marked,) = (s for s in trace.slices if s.args.get("warmup") == 1)
    assert marked.args["request"] == "q0"


def test_a_group_without_rows_is_a_trace_too(tmp_path):
    assert written(tmp_path, story_of_rows([], "none")).slices == []


@pytest.fixture
def lines(tmp_path) -> list[dict]:
    """A log's lines, and its trace besides."""
    path = logged(tmp_path / "log")
    write_timeline([story_of_log(read_log(path), "recorded")], tmp_path / "trace.json")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_choice_of_a_log_is_an_instant_with_its_reason(tmp_path, lines):
    trace = read_trace(tmp_path / "trace.json")
    urls = lines[0]["replicas"]
    logged_choices = [
        (line["reason"], line["request_id"], urls[line["replica"]], round(line["time_ms"], 6))
        for line in lines
        if line["event"] == "choice"
    ]
    shown = [
        (name, args["request"], args["replica"], float(at_us) / 1000)
        for _, name, at_us, args in trace.instants
    ]
    assert len(shown) == 60
    assert shown == [(*rest, pytest.approx(at_ms)) for *rest, at_ms in logged_choices]


def test_slices_of_a_log_end_where_its_lines_say(tmp_path, lines):
    trace = read_trace(tmp_path / "trace.json")
    names = {line["sequence"]: line["request_id"] for line in lines if line["event"] == "choice"}
    first = {names[e["sequence"]]: e["time_ms"] for e in lines if e["event"] == "first_token"}
    ended = {names[e["sequence"]]: e["finish_ms"] for e in lines if e["event"] == "outcome"}
    decodes = trace.ms("decode")
    assert set(decodes) == set(first) & set(ended)
    for request, (begin_ms, end_ms) in decodes.items():
        assert (begin_ms, end_ms) == pytest.approx((first[request], ended[request]))
    assert set(trace.ms("answer")) == set(ended) - set(first)


def test_requests_that_a_log_does_not_see_the_end_of_are_said(tmp_path, lines):
    trace = read_trace(tmp_path / "trace.json")
    choices = sum(line["event"] == "choice" for line in lines)
    outcomes = sum(line["event"] == "outcome" for line in lines)
    assert f"{choices - outcomes} requests without an outcome" in trace.about["notes"]


def test_the_engines_gauges_of_a_log_are_counters(tmp_path, lines):
    trace = read_trace(tmp_path / "trace.json")
    url = lines[0]["replicas"][0]
    readings = [e for e in lines if e["event"] == "reading" and e["replica"] == 0]
    shown = trace.counters[f"recorded: {url}", "engine: waiting"]
    assert [args["requests"] for _, args in shown] == [e["waiting"] for e in readings]
    assert (f"recorded: {url}", "engine: KV cache used") not in trace.counters
