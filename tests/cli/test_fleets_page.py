"""Every example of docs/fleets.md is run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from pointsman.cli.compare import FLEET_POLICIES
from pointsman.cli.main import main
from pointsman.fleet import tables
from tests.fleet.cost_files import write_costs

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "fleets.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
COMMANDS = [
    line
    for language, text in BLOCKS
    if language == "sh"
    for line in text.replace("\\\n", " ").splitlines()
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the examples, the files of the page and the costs that it names."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for language, text in BLOCKS:
        if language == "toml":
            name = text.splitlines()[0].removeprefix("# ")
            (tmp_path / name).write_text(text)
    write_costs(tmp_path / "costs.json", engine={"kv_blocks": 2000})
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_runs(folder, capsys, command):
    name, *words = shlex.split(command)
    assert name == "pointsman"
    assert main(words) == 0
    captured = capsys.readouterr()
    assert captured.out.rpartition("\n\n")[2].startswith(("Take ", "Nothing on this workload"))


def test_the_page_names_every_field():
    known = (
        *(tables._FLEET, tables._GROUP, tables._LINK, tables._SIGNALS, tables._HOLDING),
        *(tables._CLOSED_LOOP, tables._ROUTERS, tables._CHANGE),
    )
    for fields in known:
        for name in fields:
            assert f"`{name}`" in PAGE or f"[{name}]" in PAGE


def test_the_page_names_the_policies_that_are_run():
    (row,) = re.findall(r"^\| `--policy NAME` .*$", PAGE, flags=re.MULTILINE)
    assert tuple(re.findall(r"`(\w+)`", row)) == FLEET_POLICIES
