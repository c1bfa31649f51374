"""Of several accepted groups: which one to take, and whether noise leaves that standing."""

from __future__ import annotations

import msgspec
import pytest

from pointsman.evidence.deciding import Choice, decide_files
from pointsman.evidence.envelope import Hardware
from pointsman.evidence.folder import evidence_files, write_envelope
from pointsman.evidence.judging import Rule
from pointsman.report.measured_decision import measured_decision_text
from pointsman.verdict.decide import Limits
from tests.evidence.groups import ONE, SLOW, TWO, WORKLOAD, group, times

RULE = Rule(Limits(0.8, 0.05))


def decided(folder, **candidates):
    """Groups of two replicas, each a policy's, against one replica."""
    write_envelope(folder, group("g0", ONE, SLOW))
    for name, columns in candidates.items():
        write_envelope(folder, group(name, TWO, columns, loads=(500, 500)))
    return decide_files(evidence_files(folder), "run-1", Choice(), RULE)


def test_the_one_of_the_least_time_is_the_best_and_is_told_apart_from_the_next(tmp_path):
    document = decided(tmp_path, g1a=times(0.6), g1b=times(0.3), g1c=times(0.5))
    assert document.decisions == ("accept",) * 3
    best = document.best
    assert (best.group, best.next, best.is_told_apart) == ("g1b", "g1c", True)
    # The means of 1000, 1020 and 1040, times 0.3 and 0.5.
    assert "e2e_ms 306 against 510" in best.reason
    assert "the best of those accepted: g1b" in measured_decision_text(document, "table")


def test_what_noise_could_have_made_is_said_to_be_no_lead(tmp_path):
    best = decided(tmp_path, g1a=times(0.5), g1b=times(0.5, e2e_ms=(520.0, 500.0, 500.0))).best
    assert (best.group, best.is_told_apart) == ("g1b", False)
    assert "not told apart from noise" in best.reason


def test_what_the_best_does_worse_is_said(tmp_path):
    tail = (1900.0, 1950.0, 2000.0)
    best = decided(tmp_path, g1a=times(0.5), g1b=times(0.3, p99_ms=tail, p95_ms=tail)).best
    assert best.group == "g1b"
    assert "but p99_ms 1,950 against 1,275" in best.reason


def test_of_one_accepted_group_there_is_no_best(tmp_path):
    document = decided(tmp_path, g1a=times(0.5), g1b=times(2))
    assert document.decisions == ("accept", "reject")
    assert document.best is None
    assert "the best of" not in measured_decision_text(document, "table")


def test_engines_that_share_their_cores_with_the_router_and_the_client_are_told(tmp_path):
    many = Hardware(cpu="four cores", cores=4, memory_mb=8192.0)
    for cores, changes in ((2, {}), (4, {"hardware": many})):  # the usual ones have two
        folder = tmp_path / str(cores)
        folder.mkdir()
        for name, layout, columns in (("g0", ONE, SLOW), ("g1", TWO, times(0.5))):
            write_envelope(folder, group(name, layout, columns, (500, 500), **changes))
        (decision,) = decide_files(evidence_files(folder), "run-1", Choice(), RULE).groups
        said = [remark for remark in decision.remarks if "share" in remark]
        wanted = "g1: 2 engine processes, the router and the client share 2 cores"
        assert [each[: len(wanted)] for each in said] == ([wanted] if cores == 2 else [])


@pytest.mark.parametrize(("load", "is_said"), [("closed", True), ("open", False)])
def test_more_throughput_is_a_word_on_replicas_only_where_answers_set_the_pace(
    tmp_path, load, is_said
):
    workload = msgspec.structs.replace(WORKLOAD, load=load)
    write_envelope(tmp_path, group("g0", ONE, SLOW, workload=workload))
    write_envelope(tmp_path, group("g1", TWO, times(0.5), (500, 500), workload=workload))
    (decision,) = decide_files(evidence_files(tmp_path), "run-1", Choice(), RULE).groups
    assert ("2 times the throughput on 2 times the replicas" in decision.remarks) == is_said
