"""Logs of several files: the same choices, whatever file they stand in."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pointsman.cli.main import main
from pointsman.core.errors import InputError, MachineError
from pointsman.dispatch.dispatcher import Dispatcher, Ending, Memory, Question, Rules
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.log_file import Log, read_log
from pointsman.dispatch.log_rotation import Rotation
from pointsman.dispatch.log_writer import DecisionLog
from pointsman.dispatch.prefix_index import Chain, PrefixIndex
from pointsman.dispatch.question import Wait
from pointsman.dispatch.record import Ask, Choice, Snapshot, Usage
from pointsman.dispatch.snapshot import snapshot_of
from pointsman.policies.catalogue import POLICIES, policy_named
from pointsman.replay.replay import replay_other, replay_same
from pointsman.replay.situations import Past
from pointsman.replay.workload import workload_of_log
from pointsman.router.router_settings import RouterSettings, head_of
from pointsman.router.upstream import replica_address

REQUESTS = 40


@dataclass
class Scene:
    """What happens to a router, and after which events a further file is begun."""

    policy: str = "fewest_misses"
    replicas: int = 3
    requests: int = REQUESTS
    cuts: frozenset[int] = frozenset()
    joins_at: int = 25
    holds: bool = False


def played(path: Path, scene: Scene) -> list[Path]:
    """Its log; its files in their order.

    Requests stream or not, some show no first token, some stay in flight for long, engines tell
    their gauges, and a replica joins.
    """
    rules = Rules(policy_named(scene.policy), seed=5)
    urls = [replica_address(f"http://127.0.0.1:{8001 + k}") for k in range(scene.replicas)]
    facts = ReplicaFacts(max_num_seqs=4, kv_tokens=20_000)
    settings = RouterSettings(urls, rules, scene.policy, facts)
    rotation = Rotation(most_bytes=1 if scene.cuts else 0)
    log = DecisionLog(path, head_of(settings), print, rotation)
    now_ms, events = [0.0], itertools.count()
    room = scene.replicas + 1
    memory = Memory(room, PrefixIndex(room))
    deciding = Dispatcher(rules, settings.facts_of_replicas, lambda: now_ms[0], log, memory)

    def happened() -> None:
        if next(events) in scene.cuts:
            log.rotate_if_full(lambda: snapshot_of(deciding.ledger, now_ms[0]))

    tickets, waits = [], []
    for number in range(scene.requests):
        now_ms[0] += 3.7
        chain = Chain([number % 4 + 1, 100 + number % 4, 200 + number], block_tokens=64)
        asked = Question(f"r{number}", "/x", 200, 16, chain, f"s{number % 7}", 0, number % 5 > 0)
        if scene.holds and number % 6 == 0:
            chosen = deciding.ask(asked)
            waits.append((asked, Wait(now_ms[0], deciding.hold(chosen))))
            happened()
        tickets.append(deciding.choose(asked))
        happened()
        if scene.holds and number % 8 == 7:
            held, wait = waits.pop(0)
            tickets[-1].end(Ending())
            happened()
            tickets[-1] = deciding.choose(held, wait=wait)
            happened()
        if scene.holds and number % 19 == 18:
            held, wait = waits.pop(0)
            deciding.give_up(held, wait, "client_left")
            happened()
        if number == scene.joins_at:
            deciding.join("http://127.0.0.1:9999", ReplicaFacts())
            happened()
        if number % 11 == 0:
            deciding.read(number % scene.replicas, (float(number % 4), 2.0, math.nan))
            happened()
        now_ms[0] += 6.1
        if number % 7 and number >= 2:
            tickets[number - 2].first_token()
            happened()
        if number % 3 and number >= 5:
            usage = Usage(210, 12 + number % 9, 0)
            tickets[number - 5].end(Ending(status="ok", http_status=200, usage=usage))
            happened()
    log.close()
    older = sorted(path.parent.glob(f"{path.name}.*"), key=lambda each: int(each.suffix[1:]))
    return [*older, path]


def choices_seen(log: Log) -> list[tuple[Ask, list[list[float]]]]:
    """Each choice, also where it was held, and the view that follows from the lines before it."""
    past, seen = Past(log), []
    for event in log.events:
        if isinstance(event, Ask):
            seen.append((event, past.view_of(event).tolist()))
        past.happen(event)
    past.ledger.check_invariants()
    return seen


@pytest.fixture(scope="module")
def uncut(tmp_path_factory) -> list[tuple[Ask, list[list[float]]]]:
    """The choices of the scene in one file, with their views: what any cut has to come to."""
    [path] = played(tmp_path_factory.mktemp("uncut") / "log", Scene(holds=True))
    return choices_seen(read_log(path))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.frozensets(st.integers(0, 110), min_size=1, max_size=12))
def test_cut_after_any_lines_each_file_and_all_together_come_to_the_same_choices(
    tmp_path_factory, uncut, cuts
):
    paths = played(tmp_path_factory.mktemp("cut") / "log", Scene(cuts=cuts, holds=True))
    alone = [read_log(path) for path in paths]
    assert [seen for log in alone for seen in choices_seen(log)] == uncut
    assert all(replay_same(log).differences == [] for log in alone)
    together = read_log(*paths)
    assert choices_seen(together) == uncut
    assert (together.missing_choices, together.earlier_outcomes) == (0, 0)


def test_every_line_can_be_the_last_of_its_file(tmp_path, uncut):
    paths = played(tmp_path / "log", Scene(cuts=frozenset(range(200)), holds=True))
    assert len(paths) > 100
    assert [seen for path in paths for seen in choices_seen(read_log(path))] == uncut
    assert choices_seen(read_log(*paths)) == uncut


@pytest.mark.parametrize("policy", POLICIES)
def test_a_cut_log_replays_to_its_own_choices(tmp_path, policy):
    paths = played(tmp_path / "log", Scene(policy, cuts=frozenset(range(0, 200, 17))))
    found = [replay_same(read_log(path)) for path in paths]
    assert [result.differences for result in found] == [[]] * len(paths)
    assert sum(result.choices for result in found) == REQUESTS
    assert replay_same(read_log(*paths)).differences == []


def test_views_that_were_left_out_are_filled_again_from_a_snapshot(tmp_path):
    scene = Scene(replicas=20, requests=150, cuts=frozenset(range(20, 500, 90)))
    paths = played(tmp_path / "log", scene)
    logs = [read_log(path) for path in paths]
    assert sum(not choice.has_whole_view for log in logs for choice in log.choices) > 100
    assert all(replay_same(log).differences == [] for log in logs)


def test_another_policy_differs_alike_in_the_files_and_in_all_of_it(tmp_path):
    [one] = played(tmp_path / "one", Scene())
    paths = played(tmp_path / "log", Scene(cuts=frozenset(range(0, 200, 20))))
    other = policy_named("dynamo_kv")
    whole = replay_other(read_log(one), other).differences
    parts = [replay_other(read_log(path), other).differences for path in paths]
    assert len(whole) > 0
    assert [difference for part in parts for difference in part] == whole
    assert replay_other(read_log(*paths), other).differences == whole


def test_each_snapshot_is_what_the_lines_before_it_lead_to(tmp_path):
    paths = played(tmp_path / "log", Scene(cuts=frozenset(range(0, 200, 7))))
    log = read_log(*paths)
    past, compared = Past(log), 0
    for event in log.events:
        if isinstance(event, Snapshot):
            mine = snapshot_of(past.ledger, event.time_ms)
            assert mine.accounts == event.accounts
            assert mine.next_sequence == event.next_sequence
            compared += 1
        elif isinstance(event, Choice):
            past.view_of(event)
        past.happen(event)
    assert compared == len(paths) - 1 > 10


# Which files, and in which order.


@pytest.fixture
def four(tmp_path) -> list[Path]:
    """Four files of one run; the second begins after some ten requests, and so on."""
    paths = played(tmp_path / "log", Scene(cuts=frozenset((30, 60, 90))))
    assert len(paths) == 4
    return paths


def test_files_may_be_given_in_any_order(four):
    orders = [read_log(*order) for order in itertools.permutations(four)]
    assert {log.paths for log in orders} == {tuple(four)}
    assert all(log.events == orders[0].events for log in orders)


def test_files_one_after_the_other_in_one_are_the_same_log(four, tmp_path):
    whole = tmp_path / "whole"
    whole.write_bytes(b"".join(path.read_bytes() for path in four))
    assert read_log(whole).events == read_log(*four).events


def test_a_request_is_joined_with_its_outcome_in_the_next_file_where_both_are_given(four):
    first, second = read_log(four[0]), read_log(four[1])
    crossing = set(first.in_flight) & set(second.outcomes)
    assert first.unfinished == len(first.in_flight) > 0
    assert second.earlier_outcomes == len(crossing) > 0
    both = read_log(four[0], four[1])
    assert both.earlier_outcomes == 0
    assert both.unfinished == first.unfinished + second.unfinished - len(crossing)


def test_choices_of_a_file_between_that_is_not_given_are_missing_and_the_others_replay(four):
    gone = len(read_log(four[1]).choices)
    result = replay_same(read_log(four[0], four[2], four[3]))
    assert gone > 0
    assert result.missing_choices == gone
    assert result.differences == []
    assert result.choices == REQUESTS - gone


def test_what_lacks_before_the_first_file_is_not_called_missing(four):
    assert read_log(four[2], four[3]).missing_choices == 0


def test_a_replica_that_joined_is_known_in_every_later_file(four):
    assert len(read_log(four[0]).replicas) == 3
    assert read_log(four[3]).replicas[3] == "http://127.0.0.1:9999"
    assert read_log(*four).replicas == read_log(four[3]).replicas


def test_a_file_given_twice_is_named(four):
    with pytest.raises(
        InputError, match=rf"{four[1]} line 2: file is 2; expected 3 or later; is a"
    ):
        read_log(four[0], four[1], four[1])
    with pytest.raises(InputError, match=rf"{four[0]} line 2: is no snapshot; expected one where"):
        read_log(four[0], four[0])


def test_files_of_two_runs_are_refused(four, tmp_path):
    [other] = played(tmp_path / "other", Scene(policy="round_robin"))
    with pytest.raises(InputError, match=rf"{other} line 1: is the head of another run"):
        read_log(four[0], other)


def test_a_file_without_a_head_is_refused(four, tmp_path):
    beheaded = tmp_path / "beheaded"
    beheaded.write_bytes(four[1].read_bytes().partition(b"\n")[2])
    with pytest.raises(InputError, match=f"{beheaded} line 1: is no head"):
        read_log(four[0], beheaded)
    (tmp_path / "empty").write_bytes(b"")
    with pytest.raises(InputError, match="empty line 1: is missing"):
        read_log(four[0], tmp_path / "empty")


def test_a_wrong_line_of_a_later_file_is_named_with_its_file(four):
    lines = four[2].read_bytes().splitlines(keepends=True)
    four[2].write_bytes(b"".join([*lines[:4], b"nonsense\n", *lines[4:]]))
    with pytest.raises(InputError, match=f"{four[2]} line 5: JSON is malformed"):
        read_log(*four)


def test_a_snapshot_where_none_can_stand_is_named(four):
    head, snapshot, *rest = four[1].read_bytes().splitlines(keepends=True)
    four[1].write_bytes(b"".join([head, snapshot, *rest[:3], snapshot]))
    with pytest.raises(InputError, match=f"{four[1]} line 6: is a snapshot; expected it right"):
        read_log(four[1])


def test_a_snapshot_that_forgets_choices_or_replicas_is_named(four):
    head, line, *rest = four[3].read_bytes().splitlines(keepends=True)
    snapshot = msgspec.json.decode(line, type=Snapshot)
    assert snapshot.joined
    for changes, message in (
        ({"next_sequence": 3}, r"line 2: next_sequence is 3; expected \d+ or more"),
        ({"joined": []}, r"line 2: replicas is .*; expected .*9999"),
    ):
        wrong = msgspec.json.encode(msgspec.structs.replace(snapshot, **changes)) + b"\n"
        four[3].write_bytes(b"".join([head, wrong, *rest]))
        with pytest.raises(InputError, match=message):
            read_log(*four)


def test_a_file_that_is_not_there_is_a_machine_error(four):
    four[1].unlink()
    with pytest.raises(MachineError, match=f"cannot read {four[1]}: No such file"):
        read_log(*four)


def test_cut_off_at_any_byte_what_is_there_is_read(four):
    """The last file, from the end of its head on."""
    whole = four[3].read_bytes()
    before = len(read_log(*four[:3]).choices)
    for size in range(whole.index(b"\n") + 1, len(whole), 37):
        four[3].write_bytes(whole[:size])
        left = whole[:size].rpartition(b"\n")[0]
        kept = left.count(b'{"event":"choice"')
        log = read_log(*four)
        assert len(log.choices) == before + kept
        assert log.truncated_lines == (0 if whole[:size].endswith(b"\n") else 1)
        assert replay_same(read_log(four[3])).choices == kept


# As a workload, and the commands.


def test_the_workload_of_all_files_is_that_of_one(tmp_path, four):
    [one] = played(tmp_path / "one", Scene())
    whole, cut = workload_of_log(one), workload_of_log(*four)
    assert cut.arrival_ms.tolist() == whole.arrival_ms.tolist()
    assert cut.output_tokens.tolist() == whole.output_tokens.tolist()
    assert cut.session.tolist() == whole.session.tolist()
    assert cut.names.requests == whole.names.requests
    assert cut.source.name == f"{four[0]} and 3 more of its files"


def test_replay_takes_all_files_and_counts_what_crosses_where_one_is_given(four, capsys):
    assert main(["replay", *map(str, four)]) == 0
    assert "choices that agree: 40 of 40" in capsys.readouterr().out
    log = read_log(four[1])
    assert main(["replay", str(four[1])]) == 0
    assert capsys.readouterr().out.splitlines()[2:] == [
        f"choices that agree: {len(log.choices)} of {len(log.choices)}",
        f"choices without an outcome: {log.unfinished}",
        f"outcomes of requests sent before: {log.earlier_outcomes}",
    ]


def test_replay_says_how_many_choices_are_in_no_file(four, capsys):
    gone = len(read_log(four[1]).choices)
    assert main(["replay", str(four[0]), str(four[2])]) == 0
    assert f"choices that are in no file given: {gone}" in capsys.readouterr().out


def test_replay_simulates_the_requests_of_all_files(four, capsys):
    fleet = ["--fleet", "3xh100", "--model", "llama-3.1-8b", "--goodput", "ttft:500"]
    arguments = ["replay", *map(str, four), "--policy", "round_robin", *fleet]
    assert main([*arguments, "--format", "json"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out)
    assert found["choices"] == 40
    assert found["simulation"]["workload"]["requests"] == 40


def test_convert_takes_all_files_and_says_what_crosses_where_one_is_given(four, tmp_path, capsys):
    out = tmp_path / "out.jsonl"
    assert main(["trace", "convert", *map(str, four), "--output", str(out)]) == 0
    said = capsys.readouterr().err
    assert "wrote 40 requests" in said
    assert "sent before" not in said
    assert main(["trace", "convert", str(four[1]), "--output", str(out)]) == 0
    said = capsys.readouterr().err
    log = read_log(four[1])
    assert f"wrote {len(log.choices)} requests" in said
    assert f"requests without an outcome: {log.unfinished}" in said
    assert f"outcomes of requests sent before: {log.earlier_outcomes}" in said


def test_convert_refuses_further_files_that_are_no_logs(four, tmp_path, capsys):
    trace = tmp_path / "trace.jsonl"
    assert main(["trace", "convert", str(four[0]), "--output", str(trace)]) == 0
    capsys.readouterr()
    out = ["--output", str(tmp_path / "out.jsonl")]
    assert main(["trace", "convert", str(trace), str(four[1]), *out]) == 2
    assert "is no decision log; expected one where several files" in capsys.readouterr().err
    assert main(["trace", "convert", str(four[1]), str(trace), *out]) == 2
    assert f"{trace} line 1: " in capsys.readouterr().err
    assert main(["trace", "convert", str(four[1]), str(tmp_path / "log.9"), *out]) == 2
    assert "no such file; did you mean" in capsys.readouterr().err
