"""An interrupted plan goes on where it ended."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from pointsman import InputError, MachineError
from pointsman.plan.parallel import Workers
from pointsman.plan.plan import How, make_plan
from tests.plan import made


class StoppedError(Exception):
    """What stops a plan here."""


def plan(path, how=None, question=None):
    how = how or How(kinds=("replicas",), workers=Workers(jobs=1), resume=path)
    return make_plan((made.steady(4.0),), made.hardware(4), question or made.question(), how)


def test_what_is_finished_is_not_simulated_again(tmp_path):
    path = tmp_path / "plan.results"
    begun = []

    def stop_at_the_third(label):
        begun.append(label)
        if len(begun) == 3:
            raise StoppedError

    how = How(("replicas",), workers=Workers(jobs=1), resume=path, on_shape=stop_at_the_third)
    with pytest.raises(StoppedError):
        plan(path, how)
    resumed = plan(path)
    whole = plan(None, replace(how, resume=None, on_shape=lambda _: None))
    assert resumed.resumed == 2
    assert msgspec.json.encode(resumed.results) == msgspec.json.encode(whole.results)
    again = plan(path)
    assert (again.simulations, again.resumed) == (0, 4)
    assert msgspec.json.encode(again.results) == msgspec.json.encode(whole.results)


def test_results_of_another_question_are_not_used(tmp_path):
    path = tmp_path / "plan.results"
    plan(path)
    other = plan(path, question=made.question(attainment=0.9))
    assert other.resumed == 0
    assert plan(path).resumed == 4


def test_a_line_that_was_cut_short_is_dropped_and_planned_again(tmp_path):
    path = tmp_path / "plan.results"
    plan(path)
    path.write_bytes(path.read_bytes()[:-20])
    assert plan(path).resumed == 3
    assert plan(path).resumed == 4


def test_a_damaged_line_is_one_clear_error(tmp_path):
    path = tmp_path / "plan.results"
    plan(path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(
        b"".join([*lines[:2], lines[2].replace(b'"shape"', b'"shapa"', 1), *lines[3:]])
    )
    with pytest.raises(InputError, match=r"plan.results line 3: damaged .*delete that line"):
        plan(path)


@pytest.mark.parametrize("content", [b"hello\n", b'{"schema": "pointsman.costs/1"}\n', b"hello"])
def test_a_file_of_another_kind_is_refused_and_left_alone(tmp_path, content):
    path = tmp_path / "other"
    path.write_bytes(content)
    with pytest.raises(InputError, match="not a file of plan results"):
        plan(path)
    assert path.read_bytes() == content


def test_a_file_that_cannot_be_written_is_said_before_the_work_is_lost(tmp_path):
    with pytest.raises(MachineError, match="cannot write"):
        plan(tmp_path / "no folder" / "plan.results")
