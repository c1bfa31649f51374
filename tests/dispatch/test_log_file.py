import os
import random

import msgspec
import numpy as np
import pytest

from pointsman.core.errors import InputError, MachineError
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.log_file import read_log
from pointsman.dispatch.log_writer import DecisionLog
from pointsman.dispatch.record import (
    Choice,
    FirstToken,
    Held,
    Joined,
    LogHead,
    Outcome,
    Reading,
    Unplaced,
    Usage,
)
from pointsman.policies.policy import FREE_AT_MS, LOGGED_ROWS, REQUESTS

HEAD = LogHead(
    schema="pointsman.decision-log",
    version=3,
    pointsman="0",
    started_at="2025-01-01T00:00:00.000+00:00",
    policy="locality_aware",
    parameters={"slack_ms": 5.0},
    reads=["prefix", "queue", "session"],
    signals=["queue", "requests", "prefix", "session", "random"],
    replicas=["http://127.0.0.1:1", "http://127.0.0.1:2"],
    seed=0,
    block_tokens=64,
    facts=[ReplicaFacts(), ReplicaFacts()],
)


def unheard(message: str) -> None:
    raise AssertionError(message)


def view(**rows):
    return {**{name: [0.0, 0.0] for name in LOGGED_ROWS}, **rows}


def choice(sequence: int = 0, **changes) -> Choice:
    fields = {
        "sequence": sequence,
        "time_ms": 1.5,
        "request_id": f"r{sequence}",
        "path": "/v1/completions",
        "prompt_tokens": 70,
        "output_tokens": 16,
        "block_hashes": ["000000000000000b"],
        "session": None,
        "home": None,
        "random": 0.25,
        "candidates": [0, 1],
        "key": 5,
        "priced_tokens": 70,
        "shows_first_token": True,
        "seen": [0, 1],
        "hits": {1: 64.0},
        "view": view(queue=[1.5, 9.0], requests=[0.0, 1.0], prefix=[0.0, 64.0]),
        "replica": 0,
        "reason": "queue_fallback",
        "expected_wait_ms": 0.0,
        "expected_work_ms": 4.3,
    }
    return Choice(**{**fields, **changes})


def held(sequence: int = 0, **changes) -> Held:
    return Held(**{**msgspec.structs.asdict(choice(sequence)), **changes})


def unplaced(after: int | None) -> Unplaced:
    return Unplaced(3.0, "r", "/", None, 16, [], None, 1, after, 1.5, "client_left")


def outcome(sequence: int = 0, **changes) -> Outcome:
    fields = {
        "sequence": sequence,
        "request_id": f"r{sequence}",
        "status": "ok",
        "http_status": 200,
        "first_token_ms": 2.0,
        "realised_wait_ms": 0.25,
        "finish_ms": 3.0,
        "usage": Usage(71, 16, 0),
        "response_bytes": 12,
    }
    return Outcome(**{**fields, **changes})


def written(path, *lines):
    log = DecisionLog(path, HEAD, unheard)
    for line in lines:
        log.write(line)
    log.close()
    return path


def test_what_was_written_is_read_back(tmp_path):
    path = written(tmp_path / "log", choice(0), choice(1), outcome(1), outcome(0))
    log = read_log(path)
    assert log.head == HEAD
    assert log.choices == [choice(0), choice(1)]
    assert log.outcomes == {0: outcome(0), 1: outcome(1)}
    assert log.truncated_lines == 0


def test_lines_stand_in_the_order_in_which_things_happened(tmp_path):
    path = written(tmp_path / "log", choice(0), choice(1), outcome(1), outcome(0))
    events = [msgspec.json.decode(line)["event"] for line in path.read_bytes().splitlines()]
    assert events == ["log", "choice", "choice", "outcome", "outcome"]


def test_a_situation_comes_back_bit_for_bit(tmp_path):
    draws = random.Random(7)
    rows = {name: [draws.random() * 1e9 for _ in range(2)] for name in ("queue", "requests")}
    line = choice(0, time_ms=draws.random() * 1e9, random=draws.random(), view=view(**rows))
    read = read_log(written(tmp_path / "log", line)).choices[0]
    situation = read.situation(read.logged_view)
    assert situation.now_ms == line.time_ms
    assert situation.random == line.random
    assert situation.view[[FREE_AT_MS, REQUESTS]].tolist() == [rows["queue"], rows["requests"]]


def test_nan_is_written_as_null(tmp_path):
    path = written(tmp_path / "log", choice(0, view=view(queue=[float("nan"), 1.0])))
    assert b'"queue":[null,1.0]' in path.read_bytes()
    assert np.isnan(read_log(path).choices[0].logged_view[FREE_AT_MS, 0])


def test_lines_are_handed_on_at_a_flush(tmp_path):
    log = DecisionLog(tmp_path / "log", HEAD, unheard)
    log.write(choice(0))
    assert len(read_log(log.path).choices) == 0
    log.flush()
    assert len(read_log(log.path).choices) == 1
    log.close()


def test_a_log_that_holds_something_is_not_overwritten(tmp_path):
    path = written(tmp_path / "log", choice(0))
    with pytest.raises(InputError, match="exists; name a new file"):
        DecisionLog(path, HEAD, unheard)
    assert len(read_log(path).choices) == 1


def test_a_folder_that_does_not_exist_is_an_error_at_once(tmp_path):
    with pytest.raises(MachineError, match=r"cannot write decision log .*mkdir -p "):
        DecisionLog(tmp_path / "none" / "log", HEAD, unheard)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_complained_about_once_and_troubles_nobody(tmp_path):
    path = tmp_path / "log"
    os.symlink("/dev/full", path)
    complaints = []
    log = DecisionLog(path, HEAD, complaints.append)
    for sequence in range(3):
        log.write(choice(sequence))
        log.flush()
    assert log.lost_lines == 4
    assert complaints == [
        f"decision log {path}: No space left on device; the log ends here, requests go on"
    ]
    log.close()
    assert complaints[1:] == [f"decision log {path}: 4 lines were not written"]


@pytest.mark.parametrize("kept", [1, 40, -2])
def test_a_last_line_that_was_cut_off_is_left_out_and_counted(tmp_path, kept):
    path = written(tmp_path / "log", choice(0), choice(1))
    *whole, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole) + last[:kept])
    log = read_log(path)
    assert (len(log.choices), log.truncated_lines) == (1, 1)


def edited(path, **changes) -> bytes:
    line = msgspec.json.decode(path.read_bytes().splitlines()[1])
    return msgspec.json.encode({**line, **changes}) + b"\n"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"time_ms": "soon"}, r"line 2: Expected `float`, got `str` - at `\$.time_ms`"),
        ({"colour": 1}, "line 2: Object contains unknown field `colour`"),
        ({"event": "guess"}, "line 2: Invalid value 'guess'"),
        ({"event": "log"}, "line 2: "),
        ({"sequence": 3}, "line 2: sequence is 3; expected 0, one a choice"),
        ({"candidates": []}, r"line 2: candidates is \[\]"),
        ({"candidates": [0, 2]}, r"line 2: candidates is \[0, 2\]; expected replicas in 0..1"),
        ({"candidates": [1, 1]}, "line 2: replica is 0; expected one of the candidates"),
        ({"view": {"queue": [1.0]}}, "line 2: view.queue is"),
        ({"seen": [0, 2]}, r"line 2: seen is \[0, 2\]; expected some of the candidates"),
        ({"hits": {2: 64.0}}, r"line 2: hits is \{2: 64.0\}; expected some of the candidates"),
        ({"time_ms": -1.0}, r"line 2: Expected `float` >= 0.0 - at `\$.time_ms`"),
        ({"time_ms": 1.1e15}, r"line 2: Expected `float` <= 1000000000000000.0 - at"),
        ({"prompt_tokens": -1}, r"line 2: Expected `int` >= 0 - at `\$.prompt_tokens`"),
        ({"output_tokens": 1 << 31}, r"line 2: Expected `int` <= 2147483647 - at"),
        ({"random": 1.0}, r"line 2: Expected `float` < 1.0 - at `\$.random`"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, changes, message):
    path = written(tmp_path / "log", choice(0))
    head = path.read_bytes().splitlines(keepends=True)[0]
    path.write_bytes(head + edited(path, **changes))
    with pytest.raises(InputError, match=message):
        read_log(path)


@pytest.mark.parametrize("name", ["prompt_tokens", "output_tokens", "cached_tokens"])
def test_a_count_that_no_request_can_have_is_named(tmp_path, name):
    path = tmp_path / "log"
    good = outcome(0)
    bad = msgspec.structs.replace(good, usage=Usage(**{name: 1 << 31}))
    with pytest.raises(InputError, match=rf"line 3: Expected `int` <= .*usage\.{name}`"):
        read_log(written(path, choice(0), bad))


@pytest.mark.parametrize("block_tokens", [0, -5, 1 << 31])
def test_a_head_whose_blocks_have_no_size_is_refused(tmp_path, block_tokens):
    head = msgspec.structs.replace(HEAD, block_tokens=block_tokens)
    DecisionLog(tmp_path / "log", head, unheard).close()
    with pytest.raises(InputError, match=rf"line 1: block_tokens is {block_tokens}; expected"):
        read_log(tmp_path / "log")


def test_a_line_nested_without_end_is_named(tmp_path):
    path = written(tmp_path / "log")
    deep = b'{"deep":' + b"[" * 20_000 + b"]" * 20_000 + b',"event":"choice"}\n'
    path.write_bytes(path.read_bytes() + deep)
    with pytest.raises(InputError, match="line 2: maximum recursion depth"):
        read_log(path)


def test_an_outcome_without_its_choice_is_named(tmp_path):
    path = written(tmp_path / "log", choice(0), outcome(0), outcome(0))
    with pytest.raises(InputError, match="line 4: sequence is 0; expected one outcome a choice"):
        read_log(path)
    path.unlink()
    with pytest.raises(InputError, match="line 2: sequence is 0; expected that of a choice above"):
        read_log(written(path, outcome(0)))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (FirstToken(1, 2.0), "sequence is 1; expected that of a choice above"),
        (Reading(2, 2.0, None, None, None), r"replica is 2; expected a replica in 0\.\.1"),
        (
            Joined(2.0, 3, "http://127.0.0.1:3", ReplicaFacts()),
            "replica is 3; expected 2, the next one",
        ),
    ],
)
def test_a_line_that_cannot_have_happened_is_named(tmp_path, line, message):
    with pytest.raises(InputError, match=f"line 3: {message}"):
        read_log(written(tmp_path / "log", choice(0), line))


def test_requests_that_are_held_are_read_with_what_became_of_them(tmp_path):
    lines = held(0), held(1), held(2, after=0), choice(3, after=2), unplaced(1), outcome(3)
    log = read_log(written(tmp_path / "log", *lines, held(4)))
    assert log.events == [*lines, held(4)]
    assert [ask.sequence for ask in log.asks] == [0, 1, 2, 3, 4]
    assert log.choices == [lines[3]]
    assert log.unplaced == [lines[4]]
    assert log.held == {4}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (choice(2, after=1), "after is 1; expected the sequence of a request that is held"),
        (held(2, after=0), "after is 0; expected the sequence of a request that is held"),
        (unplaced(7), "after is 7; expected the sequence of a request that is held"),
        (choice(3), "sequence is 3; expected 2, one a choice"),
        (outcome(0), "sequence is 0; expected that of a choice above"),
        (FirstToken(0, 2.0), "sequence is 0; expected that of a choice above"),
    ],
)
def test_a_line_that_no_held_request_can_have_led_to_is_named(tmp_path, line, message):
    with pytest.raises(InputError, match=f"line 4: {message}"):
        read_log(written(tmp_path / "log", held(0), choice(1, after=0), line))


def test_a_replica_that_joined_can_be_a_candidate_from_then_on(tmp_path):
    joined = Joined(1.0, 2, "http://127.0.0.1:3", ReplicaFacts())
    later = choice(0, candidates=[0, 2], seen=[0, 2], hits={})
    log = read_log(written(tmp_path / "log", joined, later))
    assert log.replicas == [*HEAD.replicas, "http://127.0.0.1:3"]
    assert log.events == [joined, later]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "line 1: is missing"),
        (b"hello\n", "line 1: JSON is malformed"),
        (b'{"event":"log"}\n', "line 1: Object missing required field"),
    ],
)
def test_a_file_that_is_no_log_is_refused(tmp_path, text, message):
    path = tmp_path / "log"
    path.write_bytes(text)
    with pytest.raises(InputError, match=message):
        read_log(path)


def test_a_log_of_another_version_is_refused(tmp_path):
    log = DecisionLog(tmp_path / "log", msgspec.structs.replace(HEAD, version=1), unheard)
    log.close()
    with pytest.raises(InputError, match="line 1: version is 1; expected 2 or 3 or 4; read it"):
        read_log(log.path)


def test_a_log_of_version_2_is_read(tmp_path):
    """It knew nothing of requests that wait: neither the lines, nor two fields of a choice."""
    path = written(tmp_path / "log", choice(0), outcome(0))
    head, chosen, *others = map(msgspec.json.decode, path.read_bytes().splitlines())
    for name in ("after", "waited_ms"):
        del chosen[name]
    del head["holding"]
    head["version"] = 2
    path.write_bytes(
        b"".join(msgspec.json.encode(line) + b"\n" for line in (head, chosen, *others))
    )
    assert read_log(path).events == [choice(0), outcome(0)]


def test_a_log_that_is_not_there_is_a_machine_error(tmp_path):
    with pytest.raises(MachineError, match=r"cannot read .*: No such file"):
        read_log(tmp_path / "log")
