"""``pointsman init``: starter files that the readers take."""

from __future__ import annotations

import re
import shlex
import tomllib

import pytest

from pointsman.cli.init import FILES
from pointsman.cli.main import main
from pointsman.costs.devices import known_devices, read_devices
from pointsman.costs.files import KEYS, read_costs
from pointsman.costs.models import known_models, read_models
from pointsman.costs.roofline import Instance
from pointsman.costs.stages import StageCosts


@pytest.fixture
def folder(tmp_path, capsys):
    target = tmp_path / "new" / "starter"
    assert main(["init", str(target)]) == 0
    capsys.readouterr()
    return target


def test_it_writes_four_files_into_a_new_folder(folder):
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)


def test_the_costs_are_the_defaults_and_name_every_key(folder):
    assert read_costs(folder / "costs.toml") == StageCosts()
    assert set(tomllib.loads((folder / "costs.toml").read_text())) == set(KEYS)


def test_the_model_and_the_device_are_read_and_make_an_instance(folder):
    model = read_models(folder / "model.toml")["my-model"]
    device = read_devices(folder / "device.toml")["my-gpu"]
    assert Instance(model=model, device=device).fits()
    assert model.parameters == 8_030_261_248  # its shape is Llama-3.1-8B's


def test_the_questions_name_what_there_is(folder):
    experiment = tomllib.loads((folder / "questions.toml").read_text())
    assert experiment["plan"]["model"] in known_models()
    assert experiment["plan"]["device"] in known_devices()
    assert experiment["batching_fleet"]["model"] in known_models()
    assert experiment["fleet"]["costs"] in FILES


def test_it_never_writes_over_a_file_without_being_told(tmp_path, capsys):
    mine = tmp_path / "device.toml"
    mine.write_text("mine")
    assert main(["init", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "already there: device.toml; expected a folder without" in said
    assert "--force" in said
    assert [path.name for path in tmp_path.iterdir()] == ["device.toml"]
    assert mine.read_text() == "mine"


def test_it_writes_over_files_when_told(tmp_path):
    (tmp_path / "device.toml").write_text("mine")
    assert main(["init", str(tmp_path), "--force"]) == 0
    assert "my-gpu" in read_devices(tmp_path / "device.toml")


def test_it_writes_where_it_is_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    assert capsys.readouterr().err.splitlines() == [f"wrote {name}" for name in FILES]


def test_a_file_in_place_of_the_folder_is_refused(tmp_path, capsys):
    (tmp_path / "taken").write_text("")
    assert main(["init", str(tmp_path / "taken")]) == 2
    assert "is a file; expected a folder" in capsys.readouterr().err


def test_the_commands_that_it_names_run(tmp_path, capsys):
    main(["init", str(tmp_path / "a folder")])
    commands = re.findall(r"^  pointsman (.*)$", capsys.readouterr().out, flags=re.MULTILINE)
    assert [main(shlex.split(command)) for command in commands] == [0, 0, 0]
