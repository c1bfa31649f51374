"""Trace files of simulated runs, read back by the rules of the format."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pointsman import POLICIES, FifoFleet, InputError, simulate, workload_of_columns
from pointsman.core.errors import MachineError
from pointsman.report.timeline.drawing import MOST_QUEUE_LANES
from pointsman.report.timeline.file import write_timeline
from pointsman.report.timeline.simulated import story_of_fleet, story_of_single
from pointsman.report.timeline.story import Story
from pointsman.sim.batching import simulate_fleet
from pointsman.sim.conditions import Change, Conditions, Holding
from pointsman.workload.workload import Names
from tests.report.timeline.trace_reader import Trace, read_trace
from tests.small_fleets import alike, asked, split

TURNS = POLICIES["round_robin"]

# The lesson's four requests.
FOUR = workload_of_columns(
    [0.0, 1.0, 2.0, 3.0],
    service_ms=[20.0, 8.0, 8.0, 6.0],
    chain_start=[0, 1, 2, 3, 4],
    chain_blocks=[0, 1, 0, 1],
    names=Names(requests=("r0", "r1", "r2", "r3")),
)


def single(policy: str = "round_robin", workload=FOUR, replicas: int = 2) -> Story:
    return story_of_single(simulate(workload, POLICIES[policy], FifoFleet(replicas)))


def written(tmp_path: Path, *stories: Story, **limits: int) -> Trace:
    write_timeline(stories, tmp_path / "trace.json", **limits)
    return read_trace(tmp_path / "trace.json")


def test_the_lessons_four_requests_lie_where_the_lesson_puts_them(tmp_path):
    """In turns: r2 begins when r0 ends, r3 when r1 does; both find their prefix and take 30 %
    less, 5.6 and 4.2 ms."""
    trace = written(tmp_path, single())
    assert trace.ms("served", "round_robin: replica 0") == {"r0": (0.0, 20.0), "r2": (20.0, 25.6)}
    assert trace.ms("served", "round_robin: replica 1") == {"r1": (1.0, 9.0), "r3": (9.0, 13.2)}
    assert trace.ms("queued") == {"r2": (2.0, 20.0), "r3": (3.0, 9.0)}


def test_each_choice_is_an_instant_with_its_reason_and_its_replica(tmp_path):
    """At 2 both queues are busy: 18 ms on the first, 7 on the second."""
    trace = written(tmp_path, single("queue_aware"))
    assert [(name, float(at_us), args) for _, name, at_us, args in trace.instants] == [
        ("shortest_queue", 0.0, {"request": "r0", "replica": "replica 0"}),
        ("shortest_queue", 1000.0, {"request": "r1", "replica": "replica 1"}),
        ("shortest_queue", 2000.0, {"request": "r2", "replica": "replica 1"}),
        ("shortest_queue", 3000.0, {"request": "r3", "replica": "replica 1"}),
    ]


def test_counters_step_with_who_waits_and_who_runs(tmp_path):
    trace = written(tmp_path, single())
    waiting = trace.counters["round_robin: replica 0", "waiting"]
    assert [(float(at_us), args["requests"]) for at_us, args in waiting] == [
        (0.0, 0),
        (2000.0, 1),
        (20000.0, 0),
    ]
    running = trace.counters["round_robin: replica 0", "running"]
    assert [(float(at_us), args["requests"]) for at_us, args in running] == [
        (0.0, 1),
        (20000.0, 1),
        (25600.0, 0),
    ]


def test_requests_that_run_together_lie_on_lanes_of_their_own(tmp_path):
    """The first begins at once, 10 + 4; then 10 + 4 + 1 with both; then two steps of 12."""
    run = simulate_fleet(asked((0, 4, 4), (0, 4, 3)), TURNS, alike(1))
    trace = written(tmp_path, story_of_fleet(run))
    assert trace.ms("queued") == {"1": (0.0, 14.0)}
    assert trace.ms("prefill") == {"0": (0.0, 14.0), "1": (14.0, 29.0)}
    assert trace.ms("decode") == {"0": (14.0, 53.0), "1": (29.0, 53.0)}
    lanes = {(s.args["request"], s.track) for s in trace.slices if s.name != "queued"}
    assert lanes == {("0", "running 1"), ("1", "running 2")}


def test_a_hand_off_is_seen_on_both_replicas_with_an_arrow(tmp_path):
    """Prefill 10 + 8; base 5; 16 bytes; 11 for the last prompt token; two decodes of 11."""
    run = simulate_fleet(asked((0, 8, 3)), TURNS, split(1, 1))
    trace = written(tmp_path, story_of_fleet(run))
    stages = [
        (each.process.partition(": ")[2], each.name, float(each.begin_us), float(each.end_us))
        for each in trace.slices
    ]
    assert sorted(stages, key=lambda stage: stage[2:]) == [
        ("replica 0 (prefill)", "prefill", 0.0, 18000.0),
        ("replica 0 (prefill)", "hand-off", 18000.0, 39000.0),
        ("replica 1 (decode)", "receives KV", 23000.0, 39000.0),
        ("replica 1 (decode)", "first decode step", 39000.0, 50000.0),
        ("replica 1 (decode)", "decode", 50000.0, 72000.0),
    ]
    ((tail, head),) = trace.arrows
    assert (tail.name, head.name) == ("prefill", "first decode step")


def test_waiting_for_a_seat_to_decode_is_told_from_the_transfer(tmp_path):
    """As in the simulator's own tests: it comes at 53, is admitted at 61, has its KV at 77."""
    run = simulate_fleet(asked((0, 8, 5), (30, 8, 1)), TURNS, split(1, 1))
    trace = written(tmp_path, story_of_fleet(run))
    assert trace.ms("queued", "round_robin: replica 1")["1"] == (53.0, 61.0)
    assert trace.ms("receives KV")["1"] == (61.0, 77.0)
    assert len(trace.arrows) == 2


def test_a_request_that_was_preempted_has_a_decode_of_another_name(tmp_path):
    """Four blocks: each of the two holds two until the first wants a third for its ninth token."""
    requests = asked((0, 4, 8), (0, 4, 8))
    trace = written(
        tmp_path, story_of_fleet(simulate_fleet(requests, TURNS, alike(1, kv_blocks=4)))
    )
    assert list(trace.ms("decode")) == ["0"]
    assert list(trace.ms("decode, preempted")) == ["1"]
    (prefill,) = (s for s in trace.slices if s.name == "prefill" and s.args["request"] == "1")
    assert prefill.args["preemptions"] == 1


def test_who_is_rejected_or_fails_is_said_and_has_no_slice(tmp_path):
    """400 tokens are all that fit; the second one's replica dies at 50, after its first token."""
    dies = Conditions(changes=[Change(50.0, 0, "dies")])
    run = simulate_fleet(asked((0, 500, 1), (10, 4, 100)), TURNS, alike(1), dies)
    trace = written(tmp_path, story_of_fleet(run))
    assert [(name, args["request"]) for _, name, _, args in trace.instants] == [
        ("rejected: can never fit", "0"),
        ("failed: its replica died mid-stream", "1"),
    ]
    assert trace.slices == []


def test_a_request_that_was_held_has_that_on_the_routers_track(tmp_path):
    """The second would wait for 100 tokens of prefill, 110 ms: it is held until that has ended."""
    held = Conditions(holding=Holding(wait_ms=5.0))
    shortest = POLICIES["queue_aware"]
    run = simulate_fleet(asked((0, 100, 1), (1, 4, 1)), shortest, alike(1), held)
    trace = written(tmp_path, story_of_fleet(run))
    assert trace.ms("held", "queue_aware: router") == {"1": (1.0, 110.0)}
    assert trace.ms("prefill")["1"] == (110.0, 124.0)


def test_figures_of_the_cache_are_the_simulators_samples(tmp_path):
    """From the first second on 100 of 400 tokens, and a block with each fourth that is added."""
    run = simulate_fleet(asked((0, 100, 200)), TURNS, alike(1))
    trace = written(tmp_path, story_of_fleet(run))
    samples = trace.counters["round_robin: replica 0", "KV cache used"]
    at_us, first = samples[1]
    # 110 ms for the first token, then 80 whole steps of 11 until 1,000: 181 tokens, 46 blocks.
    assert (float(at_us), float(first["%"])) == (1e6, 46.0)


def test_several_runs_lie_in_processes_of_their_own(tmp_path):
    trace = written(tmp_path, single("round_robin"), single("queue_aware"))
    assert set(trace.processes.values()) == {
        f"{policy}: {place}"
        for policy in ("round_robin", "queue_aware")
        for place in ("router", "replica 0", "replica 1")
    }
    assert len(trace.ms("served", "queue_aware")) == 4


def test_beyond_the_limit_the_first_requests_are_shown_and_all_are_counted(tmp_path):
    path = tmp_path / "trace.json"
    notes = write_timeline([single()], path, most_requests=2)
    trace = read_trace(path)
    assert notes == ["round_robin: the first 2 of 4 requests have their stages; counters count all"]
    assert trace.about["notes"] == notes[0]
    assert set(trace.ms("served")) == {"r0", "r1"}
    assert max(args["requests"] for _, args in trace.counters["round_robin: replica 0", "waiting"])


def test_the_limit_is_for_all_runs_together(tmp_path):
    trace = written(tmp_path, single(), single("queue_aware"), most_requests=4)
    assert [len(trace.ms("served", each)) for each in ("round_robin", "queue_aware")] == [2, 2]


def test_a_queue_longer_than_its_lanes_is_counted_and_said(tmp_path):
    """100 at once on one replica: 99 wait, and 64 of them have a track."""
    crowd = workload_of_columns([0.0] * 100, service_ms=[1.0] * 100)
    path = tmp_path / "trace.json"
    (note,) = write_timeline([single(workload=crowd, replicas=1)], path)
    trace = read_trace(path)
    assert note.startswith(f"round_robin: {99 - MOST_QUEUE_LANES} waits, where more than 64")
    assert len(trace.ms("queued")) == MOST_QUEUE_LANES
    counts = trace.counters["round_robin: replica 0", "waiting"]
    assert counts[0][1]["requests"] == 99
    assert len(trace.ms("served")) == 100


def test_times_that_no_double_tells_exactly_still_nest(tmp_path):
    """1.001 us x 1000 is a little less than 1001 ns to a reader that cuts."""
    rng = np.random.default_rng(3)
    services = rng.integers(1, 5000, 300) / 1e6
    workload = workload_of_columns(np.zeros(300), service_ms=services)
    trace = written(tmp_path, single(workload=workload, replicas=1))
    assert len(trace.ms("served")) == 300


def test_a_name_may_hold_anything(tmp_path):
    odd = 'a "quoted" \\ name\n, 请求'
    named = replace(FOUR, names=Names(requests=(odd, "b", "c", "d")))
    assert odd in written(tmp_path, single(workload=named)).ms("served")


def test_no_requests_are_a_trace_too(tmp_path):
    trace = written(tmp_path, single(workload=workload_of_columns([], service_ms=[])))
    assert trace.slices == []
    assert len(trace.processes) == 3


def test_a_name_in_gz_is_gzipped_and_the_same_bytes_every_time(tmp_path):
    paths = [tmp_path / "one.json.gz", tmp_path / "two.json.gz"]
    for path in paths:
        write_timeline([single()], path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert len(read_trace(paths[0]).ms("served")) == 4
    assert gzip.decompress(paths[0].read_bytes()).startswith(b'{"displayTimeUnit":"ms"')


def test_a_folder_that_is_not_there_is_the_machines_error(tmp_path):
    with pytest.raises(MachineError, match="cannot write"):
        write_timeline([single()], tmp_path / "none" / "trace.json")


def test_a_time_beyond_what_a_file_can_hold_is_refused(tmp_path):
    late = workload_of_columns([1e14], service_ms=[1.0])
    with pytest.raises(InputError, match=r"timeline: a time is .*; expected at most 9e\+12 ms"):
        write_timeline([single(workload=late)], tmp_path / "trace.json")
