"""``pointsman bench`` on real llama.cpp servers, as a process of its own."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from pointsman.bench.engines.llamacpp import LlamaCpp
from pointsman.cli.main import main
from pointsman.evidence.metrics import METRIC_NAMES
from tests.bench.experiments import command, environment, group_in, rows_of, written

for needed in ("xllamacpp", "gguf", "tokenizers"):
    pytest.importorskip(needed, reason=f"{needed} is missing: pip install pointsman[llamacpp]")
pytestmark = pytest.mark.engine

G0 = 'name = "g0"\nreplicas = 1\n'
G1 = 'name = "g1_several"\nreplicas = 2\npolicies = ["round_robin", "queue_aware"]\n'
G2 = (
    'name = "g2"\nmode = "pd_disaggregated"\nprefills = 1\ndecodes = 1\n'
    'policies = ["round_robin"]\n'
)
NAMES = ("g0", "g1a_several", "g1b_several", "g2")
DECIDED = ("accept", "tune", "reject")
SLO = "[slo]\nttft_ms = 60000\n"


@dataclass(frozen=True)
class Ran:
    folder: Path
    code: int
    out: str
    err: str

    def group(self, name: str) -> dict:
        return group_in(self.folder, name)

    def files(self, *names: str) -> list[str]:
        return [str(self.folder / f"{name}.json") for name in names]


def run(words: list[str], folder: Path) -> Ran:
    done = subprocess.run(words, check=False, env=environment(), capture_output=True, text=True)
    return Ran(folder, done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> Ran:
    """Twelve requests of 20 and 4 tokens, of which the first two are warm-up; twice, by abba."""
    at = tmp_path_factory.mktemp("bench")
    head = 'repeats = 2\nwarmup_requests = 2\norder = "abba"'
    llama = {"engine": 'name = "llamacpp"\nmax_running = 4', "model": 'id = "tiny"'}
    file = written(at, [G0, G1, G2], head=head, rate_rps=20.0, **llama)
    file.write_text(file.read_text() + SLO)
    return run(command(file, "--label", "real"), at / "results" / "real")


def is_decided(ran: Ran) -> bool:
    """What was decided lies there, unless a busy client left no baseline, which is said."""
    if any(repeat["invalid"] for repeat in ran.group(baseline_of(ran))["repeats"]):
        assert "nothing is decided" in ran.err
        return False
    return True


def baseline_of(ran: Ran) -> str:
    (name,) = [path.stem for path in ran.folder.glob("g0*.json")]
    return name


def test_all_groups_are_measured_and_their_files_are_sound(ran, capsys):
    assert ran.code == 0, ran.err
    assert main(["evidence", "check", *ran.files(*NAMES)]) == 0, capsys.readouterr().out
    for name in NAMES:
        group = ran.group(name)
        assert group["failure"] is None
        assert (group["statuses"]["ok"], group["statuses"]["offered"]) == (20, 20)
        assert (group["goodput"]["offered"], group["goodput"]["met"]) == (20, 20)


def test_every_repeat_begins_with_empty_caches_the_same_seed_and_its_place_in_the_order(ran):
    places = {}
    for name in NAMES:
        repeats = ran.group(name)["repeats"]
        assert {(each["cache"], each["seed"]) for each in repeats} == {("reset", 3)}
        places[name] = [each["position"] for each in repeats]
    assert places == {"g0": [1, 8], "g1a_several": [2, 7], "g1b_several": [3, 6], "g2": [4, 5]}


def test_all_metrics_are_known_but_the_hand_off_of_groups_that_have_none(ran):
    for name in NAMES:
        group = ran.group(name)
        unknown = {metric for metric in METRIC_NAMES if group["metrics"][metric] is None}
        assert unknown == (set() if name == "g2" else {"kv_handoff_ms", "kv_handoff_bytes"})
        for metric in METRIC_NAMES:
            detail = group["details"][metric]
            assert (detail["reason"] is not None) == (metric in unknown)


def test_prefill_and_decode_apart_have_a_hand_off_with_time_and_bytes_and_its_stages(ran):
    group = ran.group("g2")
    assert group["layout"]["handoff"] == "llamacpp"
    assert group["details"]["kv_handoff_ms"]["count"] == 20
    assert group["metrics"]["kv_handoff_bytes"] > 20 * 1000  # of 20 tokens
    stages = {each["name"]: each for each in group["stages"]}
    for stage in ("client_delay", "router", "queue_wait", "prefill", "handoff", "decode_wait"):
        assert stages[stage]["count"] == 20, stage
    assert stages["handoff"]["mean_ms"] == pytest.approx(group["metrics"]["kv_handoff_ms"])
    parts = sum(each["mean_ms"] for name, each in stages.items() if name != "e2e")
    assert parts == pytest.approx(stages["e2e"]["mean_ms"], abs=0.1)


def test_both_replicas_of_a_group_were_used_and_their_loads_add_up(ran):
    for name in ("g1a_several", "g1b_several"):
        for repeat in ran.group(name)["repeats"]:
            assert sum(each["requests"] for each in repeat["loads"]) == 10
    for repeat in ran.group("g1a_several")["repeats"]:
        assert [each["requests"] for each in repeat["loads"]] == [5, 5]
    for repeat in ran.group("g2")["repeats"]:
        assert [each["pool"] for each in repeat["loads"]] == ["prefill", "decode"]
        assert [each["requests"] for each in repeat["loads"]] == [10, 10]


def test_prompts_and_answers_are_as_long_as_they_were_asked_to_be(ran):
    for name in NAMES:
        for repeat in ran.group(name)["repeats"]:
            rows = rows_of(ran.folder, repeat)
            assert {(row["prompt_tokens"], row["output_tokens"]) for row in rows} == {(20, 4)}
            assert {row["finish_reason"] for row in rows} == {"length"}


def test_what_served_is_stated_with_its_version_its_weights_and_its_commands(ran):
    backend = ran.group("g1a_several")["backend"]
    assert backend["version"] == LlamaCpp().version()
    assert backend["model"]["revision"].startswith("sha256:")
    assert backend["model"]["dtype"] == "MOSTLY_F16"
    assert len(backend["commands"]) == 2
    assert "--policy round_robin" in backend["router_command"]


def test_what_is_decided_lies_beside_the_files_and_decide_says_the_same(ran, capsys):
    if not is_decided(ran):
        return
    document = json.loads((ran.folder / "decision.json").read_text())
    decided = {each["group"]: each["decision"] for each in document["groups"]}
    assert set(decided) == set(NAMES[1:])
    assert set(decided.values()) <= set(DECIDED)
    assert main(["decide", str(ran.folder.parent), "--label", "real", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == document


def test_an_engine_that_cannot_load_its_model_fails_its_group_and_the_others_go_on(tmp_path):
    """A file that begins as GGUF does passes for a model until the engine reads it."""
    (tmp_path / "no-model.gguf").write_bytes(b"GGUF and then nothing that an engine knows")
    made = {"backend": "mine", "workload": "w", "hardware": "h", "evidence_level": "simulation"}
    made |= {"metrics": dict.fromkeys(METRIC_NAMES, 1.0), "failure": None, "decision": None}
    (tmp_path / "made.json").write_text(json.dumps(made))
    copies = json.dumps(["cp", str(tmp_path / "made.json"), "{result}"])
    own = f'name = "own"\nreplicas = 1\ncommand = {copies}\n'
    llama = {"engine": 'name = "llamacpp"', "model": f'id = "{tmp_path}/no-model.gguf"'}
    file = written(tmp_path, [G0, own], **llama)
    done = run(command(file), tmp_path / "results" / "run-1")
    assert done.code == 1
    failure = done.group("g0")["failure"]
    assert failure["stage"] == "start"
    assert "it ended before it was ready" in failure["reason"]
    assert set(done.group("g0")["metrics"].values()) == {None}
    assert done.group("own") == made
    assert main(["evidence", "check", *done.files("g0", "own")]) == 0


def test_the_demo_measures_one_replica_three_policies_and_a_split_and_decides(tmp_path, capsys):
    own = command(tmp_path / "none", "--label", "demo", "--repeats", "1")
    words = ["--demo" if word == str(tmp_path / "none") else word for word in own]
    done = run(words, tmp_path / "results" / "demo")
    assert done.code == 0, done.err
    names = ["g0_single_replica", *(f"g1{k}_multi_replica" for k in "abc"), "g2_pd_disaggregated"]
    assert sorted(path.stem for path in done.folder.glob("g*.json")) == names
    assert main(["evidence", "check", *done.files(*names)]) == 0, capsys.readouterr().out
    for name in names:
        assert done.group(name)["statuses"]["ok"] == 60  # 64, four of them warm-up
    assert done.group(names[-1])["metrics"]["kv_handoff_bytes"] > 0
    if is_decided(done):
        document = json.loads((done.folder / "decision.json").read_text())
        assert [each["group"] for each in document["groups"]] == names[1:]
