"""Files are written whole or not at all."""

from __future__ import annotations

import pytest

from pointsman.core.errors import MachineError
from pointsman.core.files import whole_file


def test_a_finished_file_takes_the_place_of_the_old_one(tmp_path):
    path = tmp_path / "out.json"
    path.write_bytes(b"old")
    with whole_file(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["out.json"]


@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_an_unfinished_file_leaves_nothing_behind(tmp_path, failure):
    path = tmp_path / "out.json"
    path.write_bytes(b"old")
    with pytest.raises(failure), whole_file(path) as file:
        file.write(b"half")
        raise failure
    assert path.read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_is_not_there_is_one_error(tmp_path):
    path = tmp_path / "nowhere" / "out.json"
    wanted = r"cannot write .*nowhere/out\.json: No such file"
    with pytest.raises(MachineError, match=wanted), whole_file(path):
        pass


def test_a_new_file_has_the_usual_permissions(tmp_path):
    ordinary = tmp_path / "ordinary"
    ordinary.write_bytes(b"")
    with whole_file(tmp_path / "whole") as file:
        file.write(b"x")
    assert (tmp_path / "whole").stat().st_mode == ordinary.stat().st_mode
