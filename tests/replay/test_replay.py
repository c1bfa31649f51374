import csv
import json
import math

import msgspec
import pytest

from pointsman.cli.main import main
from pointsman.core.errors import InputError
from pointsman.dispatch.dispatcher import Dispatcher, Ending, Question, Rules
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.log_file import read_log
from pointsman.dispatch.log_writer import DecisionLog
from pointsman.dispatch.policy_file import policy_sha256
from pointsman.dispatch.prefix_index import Chain
from pointsman.dispatch.record import Choice, Usage
from pointsman.policies.catalogue import POLICIES, policy_named
from pointsman.replay.replay import replay_other, replay_same
from pointsman.replay.situations import Past
from pointsman.router.router_settings import RouterSettings, head_of
from pointsman.router.upstream import replica_address

MINE = """
from pointsman.policies.policy import policy

@policy(rule="-", source="-", reasons=("mine", "other"), parameters={"k": 1.0}, reads=("random",))
def mine(request, view, parameters):
    return int(request.random * view.shape[1]), int(parameters[0]) % 2
"""


def logged(path, policy="locality_aware", name=None, *, replicas=3, requests=60, ends=True):
    """A log of a dispatcher that some sessions ask, every third request still in flight."""
    rules = Rules(policy_named(policy), seed=5)
    name = name or policy.partition(":")[0]
    settings = RouterSettings(fleet_of(replicas), rules, name, policy_sha256=policy_sha256(name))
    log = DecisionLog(path, head_of(settings), print)
    now_ms = [0.0]
    deciding = Dispatcher(rules, [ReplicaFacts()] * replicas, lambda: now_ms[0], log)
    for number in range(requests):
        now_ms[0] += 0.37
        chain = Chain([number % 4 + 1, 100 + number % 4, 200 + number], block_tokens=64)
        streams = bool(number % 5)
        asked = Question(
            f"r{number}", "/v1/completions", 200, 16, chain, f"s{number % 7}", streams=streams
        )
        ticket = deciding.choose(asked)
        if ends and number % 11 == 0:
            deciding.read(number % replicas, (float(number % 4), 2.0, math.nan))
        if ends and streams and number % 7:
            now_ms[0] += 0.61
            ticket.first_token()
        if ends and number % 3:
            now_ms[0] += 0.13
            ticket.end(Ending(status="ok", http_status=200, usage=Usage(210, 12, 0)))
    log.close()
    return path


def fleet_of(count: int):
    return [replica_address(f"http://127.0.0.1:{8001 + k}") for k in range(count)]


def replace_line(path, number, **changes):
    lines = path.read_bytes().splitlines()
    lines[number] = msgspec.json.encode({**msgspec.json.decode(lines[number]), **changes})
    path.write_bytes(b"\n".join(lines) + b"\n")


@pytest.mark.parametrize("policy", [*POLICIES, "locality_aware:slack_ms=0.125"])
def test_a_log_replays_to_its_own_choices(tmp_path, policy):
    result = replay_same(read_log(logged(tmp_path / "log", policy)))
    assert (result.choices, result.differences) == (60, [])
    assert result.replayed_policy == result.recorded_policy == policy_named(policy).label


@pytest.mark.parametrize("policy", ["fewest_misses", "earliest_first_token", "dynamo_kv"])
def test_beyond_16_replicas_the_views_that_were_left_out_are_filled_again(tmp_path, policy):
    log = read_log(logged(tmp_path / "log", policy, replicas=20, requests=200))
    partial = [choice for choice in log.choices if not choice.has_whole_view]
    assert len(partial) > 190
    assert all(choice.replica in choice.seen for choice in partial)
    assert replay_same(log).differences == []


def test_every_view_is_what_follows_from_the_lines_before_it(tmp_path):
    log = read_log(logged(tmp_path / "log", "fewest_misses", requests=300))
    past = Past(log)
    for event in log.events:
        if isinstance(event, Choice):
            assert past.view_of(event).tolist() == event.logged_view.tolist()
        past.happen(event)


def test_a_policy_from_a_file_is_found_again(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    path = logged(tmp_path / "log", f"{file}:mine:k=2", name=f"{file}:mine")
    assert replay_same(read_log(path)).agreeing == 60
    file.unlink()
    with pytest.raises(InputError, match=r"policy file .*mine\.py does not exist"):
        replay_same(read_log(path))


def test_a_choice_that_was_altered_is_found(tmp_path):
    path = logged(tmp_path / "log", "round_robin", ends=False)
    replace_line(path, 8, replica=0)
    [difference] = replay_same(read_log(path)).differences
    assert difference.sequence == 7
    assert difference.recorded_replica == "http://127.0.0.1:8001"
    assert difference.replayed_replica == "http://127.0.0.1:8002"


def test_a_reason_that_was_altered_is_found(tmp_path):
    path = logged(tmp_path / "log", "round_robin", ends=False)
    replace_line(path, 8, reason="whim")
    assert [item.recorded_reason for item in replay_same(read_log(path)).differences] == ["whim"]


@pytest.mark.parametrize("other", list(POLICIES))
def test_any_policy_can_be_asked_about_a_log_of_any_other(tmp_path, other):
    log = read_log(logged(tmp_path / "log", "round_robin"))
    result = replay_other(log, policy_named(other))
    assert result.choices == 60
    assert (result.differences == []) == (other == "round_robin")


def test_a_policy_that_reads_what_a_log_does_not_hold_is_refused(tmp_path):
    path = logged(tmp_path / "log", "round_robin")
    replace_line(path, 0, signals=["queue"])
    with pytest.raises(InputError, match="policy power_of_two reads random, requests; expected"):
        replay_other(read_log(path), policy_named("power_of_two"))


def test_a_policys_file_that_has_changed_since_is_found(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    path = logged(tmp_path / "log", f"{file}:mine", name=f"{file}:mine")
    assert not replay_same(read_log(path)).policy_changed
    file.write_text(MINE.replace("random * view.shape[1]", "random * 1"))
    changed = replay_same(read_log(path))
    assert changed.policy_changed
    assert changed.differences
    replace_line(path, 0, policy_sha256=None)  # a log that does not know
    assert not replay_same(read_log(path)).policy_changed


# The command.


def test_the_effect_of_another_policy_is_simulated_on_the_logs_requests(tmp_path, capsys):
    path = logged(tmp_path / "log", "round_robin")
    fleet = ["--fleet", "3xh100", "--model", "llama-3.1-8b", "--goodput", "ttft:500"]
    arguments = ["replay", str(path), "--policy", "fewest_misses", *fleet]
    assert main([*arguments, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["choices"] == 60
    simulation = found["simulation"]
    names = {result["policy"] for result in simulation["results"]}
    assert names == {"round_robin", "fewest_misses"}
    assert simulation["baseline"] == "round_robin"
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "simulated from the first request on" in out
    assert "Differences to round_robin" in out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--fleet", "3xh100"], "expected --policy NAME"),
        (["--policy", "random", "--costs", "c.json"], "--costs goes with --fleet"),
        (["--policy", "random", "--model", "llama-3.1-8b"], "--model"),
        (["--policy", "random", "--fleet", "2xh100", "--format", "csv"], "does not go with csv"),
    ],
)
def test_flags_of_the_simulation_that_do_not_go_together_are_refused(
    tmp_path, capsys, flags, message
):
    path = logged(tmp_path / "log", "round_robin", requests=2)
    assert main(["replay", str(path), *flags]) == 2
    assert message in capsys.readouterr().err


def test_a_page_of_several_policies_has_each_of_them(tmp_path, capsys):
    """Written at once, or made of the JSON: the same."""
    path, page, result = (tmp_path / name for name in ("log", "page.html", "result.json"))
    logged(path, "round_robin")
    others = ["--policy", "random", "--policy", "queue_aware"]
    assert main(["replay", str(path), *others, "--report", str(page), "--output", str(result)]) == 0
    text = page.read_text()
    for name in ("random", "queue_aware"):
        assert f"choices of round_robin come out the same with {name}," in text
        assert f"{name} in place of round_robin" in text
    assert main(["report", str(result), "--output", str(tmp_path / "again.html")]) == 0
    assert (tmp_path / "again.html").read_text() == text.replace("Replay: log", "Replay: result")


def test_the_command_says_how_many_choices_agree(tmp_path, capsys):
    path = logged(tmp_path / "log")
    assert main(["replay", str(path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "recorded: locality_aware(slack_ms=5)",
        "replayed: locality_aware(slack_ms=5)",
        "choices that agree: 60 of 60",
        "choices without an outcome: 20",
    ]


def test_the_command_says_that_the_policys_file_has_changed(tmp_path, capsys):
    file = tmp_path / "mine.py"
    file.write_text(MINE)
    path = logged(tmp_path / "log", f"{file}:mine", name=f"{file}:mine")
    file.write_text(MINE + "\n")
    assert main(["replay", str(path)]) == 0
    line = "the policy's file has changed since the log was written"
    assert line in capsys.readouterr().out.splitlines()


def test_the_command_fails_and_lists_the_choices_that_do_not_agree(tmp_path, capsys):
    path = logged(tmp_path / "log", "round_robin", ends=False)
    replace_line(path, 8, replica=0)
    assert main(["replay", str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "choices that agree: 59 of 60"
    assert lines[-1].split() == [
        "7",
        "3.0",
        "r7",
        "http://127.0.0.1:8001",
        "(round_robin)",
        "http://127.0.0.1:8002",
        "(round_robin)",
    ]


def test_another_policy_is_not_expected_to_agree(tmp_path, capsys):
    path = logged(tmp_path / "log", "round_robin")
    assert main(["replay", str(path), "--policy", "locality_aware:slack_ms=0"]) == 0
    out = capsys.readouterr().out
    assert "replayed: locality_aware(slack_ms=0)" in out
    assert "more; --format json lists all" in out


def test_several_policies_are_replayed_in_the_order_given(tmp_path, capsys):
    path = logged(tmp_path / "log", "round_robin")
    several = ["--policy", "round_robin", "--policy", "locality_aware:slack_ms=0"]
    alone = []
    for place in (0, 2):
        assert main(["replay", str(path), *several[place : place + 2]]) == 0
        alone.append(capsys.readouterr().out)
    assert main(["replay", str(path), *several]) == 0
    assert capsys.readouterr().out == "\n".join(alone)


def test_as_json_each_of_several_policies_has_the_document_of_one(tmp_path, capsys):
    path = logged(tmp_path / "log", "round_robin")
    alone = []
    for name in ("queue_aware", "round_robin"):
        assert main(["replay", str(path), "--policy", name, "--format", "json"]) == 0
        alone.append(json.loads(capsys.readouterr().out))
    both = ["--policy", "queue_aware", "--policy", "round_robin"]
    assert main(["replay", str(path), *both, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["schema"] == "pointsman.replays/1"
    assert found["replays"] == alone


def test_as_csv_the_differences_of_several_policies_bear_their_names(tmp_path, capsys):
    path = logged(tmp_path / "log", "round_robin")
    both = ["--policy", "queue_aware", "--policy", "locality_aware:slack_ms=0"]
    assert main(["replay", str(path), *both, "--format", "csv"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert {row["policy"] for row in rows} == {"queue_aware", "locality_aware(slack_ms=0)"}


def test_several_policies_are_simulated_together(tmp_path, capsys):
    path = logged(tmp_path / "log", "round_robin")
    fleet = ["--fleet", "3xh100", "--model", "llama-3.1-8b", "--format", "json"]
    both = ["--policy", "queue_aware", "--policy", "least_requests"]
    assert main(["replay", str(path), *both, *fleet]) == 0
    simulation = json.loads(capsys.readouterr().out)["simulation"]
    names = {result["policy"] for result in simulation["results"]}
    assert names == {"round_robin", "queue_aware", "least_requests"}


def test_json_goes_to_a_file(tmp_path, capsys):
    path = logged(tmp_path / "log", "round_robin")
    output = tmp_path / "out.json"
    main(
        [
            "replay",
            str(path),
            "--policy",
            "queue_aware",
            "--format",
            "json",
            "--output",
            str(output),
        ]
    )
    result = msgspec.json.decode(output.read_bytes())
    assert capsys.readouterr().out == ""
    assert result["agreeing"] + len(result["differences"]) == result["choices"] == 60
    assert result["differences"][0]["recorded_reason"] == "round_robin"


def test_a_log_that_was_cut_off_is_replayed_as_far_as_it_goes(tmp_path, capsys):
    path = logged(tmp_path / "log", ends=False)
    path.write_bytes(path.read_bytes()[:-20])
    assert main(["replay", str(path)]) == 0
    out = capsys.readouterr().out
    assert "choices that agree: 59 of 59" in out
    assert "the last line was cut off" in out


def test_a_file_that_is_no_log_is_an_input_error(tmp_path, capsys):
    path = tmp_path / "log"
    path.write_text("nonsense\n")
    assert main(["replay", str(path)]) == 2
    assert f"{path} line 1: " in capsys.readouterr().err
