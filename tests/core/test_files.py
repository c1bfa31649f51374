"""Files are written whole or not at all."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from pointsman.core.errors import InputError, MachineError
from pointsman.core.files import check_can_write, check_is_file, read_file, whole_file


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
    folder = tmp_path / "no where"
    with pytest.raises(MachineError) as caught, whole_file(folder / "out.json"):
        pass
    assert str(caught.value) == (
        f"cannot write {folder}/out.json: there is no folder {folder};"
        f" make it with: mkdir -p '{folder}'"
    )


def test_a_missing_folder_is_named_as_it_was_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MachineError, match=r"make it with: mkdir -p out/deep$"):
        check_can_write(Path("out/deep/demo.json"))


def test_a_file_that_stands_where_a_folder_should_is_named(tmp_path):
    (tmp_path / "out").write_bytes(b"")
    with pytest.raises(MachineError, match=f"{tmp_path}/out is a file; expected a folder"):
        check_can_write(tmp_path / "out" / "deep" / "demo.json")


def test_whether_a_file_can_be_written_is_asked_without_a_trace(tmp_path):
    check_can_write(tmp_path / "out.json")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(MachineError, match=r"cannot write .*no/out\.json"):
        check_can_write(tmp_path / "no" / "out.json")
    with pytest.raises(MachineError, match="Is a directory"):
        check_can_write(tmp_path)


def test_a_new_file_has_the_usual_permissions(tmp_path):
    ordinary = tmp_path / "ordinary"
    ordinary.write_bytes(b"")
    with whole_file(tmp_path / "whole") as file:
        file.write(b"x")
    assert (tmp_path / "whole").stat().st_mode == ordinary.stat().st_mode


def test_a_file_that_is_not_there_is_wrong_input(tmp_path):
    for path in (tmp_path / "none", tmp_path / "none" / "x", tmp_path):
        for read in (read_file, check_is_file):
            with pytest.raises(InputError, match=rf"{path}: (no such file|is a folder)"):
                read(path)


def test_the_nearest_file_is_named_for_one_that_is_not_there(tmp_path):
    (tmp_path / "fleet.toml").touch()
    (tmp_path / "fleet.tm").mkdir()
    with pytest.raises(InputError, match=rf"no such file; did you mean {tmp_path}/fleet.toml\?$"):
        read_file(tmp_path / "fleet.tml")
    with pytest.raises(InputError, match=r"no such file$"):
        read_file(tmp_path / "other.csv")


def test_an_ending_alone_makes_no_two_files_alike(tmp_path):
    (tmp_path / "one.json").touch()
    with pytest.raises(InputError, match=r"nothing\.json: no such file$"):
        read_file(tmp_path / "nothing.json")


def test_a_path_with_a_null_character_is_wrong_input():
    for read in (read_file, check_is_file):
        with pytest.raises(InputError, match="null character"):
            read(Path("a\0b"))


def test_a_named_pipe_is_written_into_and_stays_one(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    with whole_file(pipe) as file:
        file.write(b"passed on")
    reader.join(timeout=10)
    assert got == [b"passed on"]
    assert pipe.is_fifo()


def test_a_link_is_followed_and_a_file_keeps_its_permissions(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    real.chmod(0o600)
    link.symlink_to(real)
    with whole_file(link) as file:
        file.write(b"new")
    assert link.is_symlink()
    assert (real.read_bytes(), real.stat().st_mode & 0o777) == (b"new", 0o600)


def test_a_link_to_itself_becomes_the_file(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with whole_file(loop) as file:
        file.write(b"whole")
    assert loop.read_bytes() == b"whole"


def test_a_name_as_long_as_may_be_can_be_written(tmp_path):
    path = tmp_path / ("n" * 255)
    check_can_write(path)
    with whole_file(path) as file:
        file.write(b"all")
    assert path.read_bytes() == b"all"


def test_a_name_that_is_too_long_is_refused_before_the_work(tmp_path):
    with pytest.raises(MachineError, match=r"cannot write .*File name too long"):
        check_can_write(tmp_path / ("n" * 256))
