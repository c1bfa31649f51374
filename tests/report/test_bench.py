"""The table of what an experiment measured, and what stands under it."""

from __future__ import annotations

import msgspec
import pytest

from pointsman.evidence.envelope import Failure
from pointsman.evidence.folder import evidence_files
from pointsman.evidence.measured import no_figures
from pointsman.report.bench import bench_table
from tests.evidence.groups import SLOW, TWO, group, three_groups, with_repeats, written

G0, G1, G2 = three_groups()


@pytest.fixture
def table(tmp_path):
    """Of these groups' files."""
    return lambda *groups: bench_table(evidence_files(written(tmp_path / "run-1", *groups)))


def cells(text: str, name: str) -> list[str]:
    """Of its line, which stands before all notes."""
    return next(line for line in text.splitlines() if line.startswith(f"{name} ")).split()


def test_a_line_a_group_has_its_shape_its_policy_and_its_figures(table):
    text = table(G0, G1, G2)
    # TTFT, TPOT, E2E, P95, P99, queue, hand-off, tokens/s, MiB, success
    slow = ["410", "10.1", "1,020", "2,050", "2,550", "310", "-", "301", "100", "1"]
    assert cells(text, G0.group) == [G0.group, "1", "-", *slow]
    assert cells(text, G1.group)[1:3] == ["2", "fewest_misses"]
    assert cells(text, G2.group)[1:3] == ["1P1D", "fewest_misses"]
    assert cells(text, G2.group)[9] == "10"


def test_degrees_above_1_are_part_of_the_shape(table):
    layout = msgspec.structs.replace(TWO, tp=2, pp=4)
    assert " 2 x TP2 x PP4 " in table(group("g1", layout, SLOW))


def test_a_failed_group_has_no_figure_and_is_told_with_its_stage_and_reason(table):
    nothing = no_figures("start: the port is taken")
    failed = msgspec.structs.replace(
        G1,
        failure=Failure(stage="start", reason="the port is taken", retry="again"),
        metrics=nothing.metrics,
        details=nothing.details,
        repeats=(),
    )
    text = table(G0, failed)
    assert cells(text, G1.group)[3:] == ["-"] * 10
    assert f"{G1.group} failed at start: the port is taken" in text


def test_what_is_no_result_is_said_and_not_said_twice(table):
    text = table(with_repeats(G0, invalid="late: by 900 ms", warnings=("late: by 900 ms",)))
    assert text.count("late: by 900 ms") == 1
    assert "3 repeats: no result: in g0_single_replica 1, late: by 900 ms" in text


def test_what_all_repeats_have_to_say_alike_is_said_once(table):
    text = " ".join(
        table(*(with_repeats(each, warnings=("few: 9 ended",)) for each in (G0, G1))).split()
    )
    assert "6 repeats: few: in g0_single_replica 1, 9 ended" in text
    assert text.count("few: ") == 1


def test_a_file_of_the_lessons_shape_has_its_figures_and_no_shape(table, tmp_path):
    text = table(G0)
    (tmp_path / "run-1" / "own.json").write_text('{"metrics": {"ttft_ms": 12.5}, "failure": "x"}')
    text = bench_table(evidence_files(tmp_path / "run-1"))
    assert cells(text, "own")[:5] == ["own", "-", "-", "12.5", "-"]
    assert "own failed at x" in text
