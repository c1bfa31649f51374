"""Results are never overwritten, and a label chooses among runs."""

from __future__ import annotations

import hashlib

import pytest

from pointsman import InputError, MachineError
from pointsman.evidence.decision_file import DecisionDocument, write_decision
from pointsman.evidence.folder import (
    decisions_of,
    evidence_files,
    label_folder,
    new_label_folder,
    write_envelope,
    write_rows,
)
from tests.evidence.groups import three_groups, written


def test_without_a_label_each_run_has_a_folder_of_its_own(tmp_path):
    results = tmp_path / "results"
    names = [new_label_folder(results, None).name for _ in range(3)]
    assert names == ["run-1", "run-2", "run-3"]


def test_a_label_that_has_results_is_refused(tmp_path):
    new_label_folder(tmp_path, "night")
    with pytest.raises(InputError, match=r"never overwritten; choose another --label"):
        new_label_folder(tmp_path, "night")


@pytest.mark.parametrize("label", ["", "..", "a/b", ".hidden", "a b"])
def test_a_label_is_one_folder(tmp_path, label):
    with pytest.raises(InputError, match=r"label is .*; expected letters, digits"):
        new_label_folder(tmp_path, label)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_there_is_never_overwritten(tmp_path):
    group = three_groups()[0]
    path = write_envelope(tmp_path, group)
    before = path.read_bytes()
    with pytest.raises(InputError, match="never overwritten"):
        write_envelope(tmp_path, three_groups()[0])
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_rows_lie_beside_with_their_digest(tmp_path):
    side = write_rows(tmp_path, "g1-2", [{"number": 0, "ttft_ms": 1.5}])
    content = (tmp_path / side.file).read_bytes()
    assert content == b'{"number":0,"ttft_ms":1.5}\n'
    assert (side.sha256, side.rows) == (hashlib.sha256(content).hexdigest(), 1)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(
        MachineError, match=r"cannot write .*g0_single_replica\.json: there is no folder"
    ):
        write_envelope(tmp_path / "none", three_groups()[0])


def test_the_only_run_needs_no_label(tmp_path):
    folder = written(tmp_path / "night", *three_groups())
    assert label_folder(tmp_path, None) == folder
    assert label_folder(folder, None) == folder


def test_of_several_runs_one_is_chosen_by_its_label(tmp_path):
    for name in ("day", "night"):
        written(tmp_path / name, *three_groups())
    assert label_folder(tmp_path, "day") == tmp_path / "day"
    with pytest.raises(InputError, match="has 2 runs, day, night; choose one with --label"):
        label_folder(tmp_path, None)
    with pytest.raises(InputError, match=r"did you mean night\?"):
        label_folder(tmp_path, "nigth")


@pytest.mark.parametrize("name", ["", "none"])
def test_a_folder_without_results_is_wrong_input(tmp_path, name):
    with pytest.raises(InputError, match=r"no results|no such file"):
        label_folder(tmp_path / name, None)


def test_another_decision_on_the_same_files_is_kept_beside_the_first(tmp_path):
    written(tmp_path, *three_groups())
    names = [write_decision(tmp_path, decision(level)).name for level in (0.95, 0.95, 0.9)]
    assert names == ["decision.json", "decision.json", "decision-2.json"]
    assert [file.stem[:2] for file in evidence_files(tmp_path)] == ["g0", "g1", "g2"]


def test_of_every_file_that_was_decided_on_the_latest_decision_counts(tmp_path):
    mine = ("decision", "decision-2", "decision-10", "m.decision-3", "m.decision", "a.b.decision")
    for name in (*mine, "decision-x", "undecision", "m"):
        (tmp_path / f"{name}.json").write_text("{}")
    latest = [path.name for path in decisions_of(tmp_path)]
    assert latest == ["decision-10.json", "a.b.decision.json", "m.decision-3.json"]


def decision(level: float) -> DecisionDocument:
    return DecisionDocument(
        schema="pointsman.measured-decision/1",
        pointsman="0.1.0",
        label="x",
        level=level,
        max_imbalance_ratio=0.8,
        max_comm_ratio=0.05,
        groups=(),
        mechanisms=(),
        not_compared=(),
    )
