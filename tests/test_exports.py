"""The public API: every name loads, is what its home has, and is known to type checkers."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import pointsman

SOURCE = Path(pointsman.__file__)

SNIPPET = """
from typing import Any
import pointsman
reveal_type(pointsman.simulate)
reveal_type(pointsman.InputError("x"))
pointsman.no_such_name
reveal_type(pointsman.__version__)
"""


@pytest.mark.parametrize("name", pointsman.__all__)
def test_an_exported_name_is_what_its_home_has(name):
    home = importlib.import_module(pointsman._HOMES[name])
    assert getattr(pointsman, name) is getattr(home, name)
    assert name in dir(pointsman)


def test_type_checkers_are_told_the_same_names_from_the_same_homes():
    imports = [
        node for node in ast.walk(ast.parse(SOURCE.read_text())) if isinstance(node, ast.ImportFrom)
    ]
    told = {alias.asname: node.module for node in imports for alias in node.names if alias.asname}
    assert told == pointsman._HOMES


def test_a_type_checker_knows_the_public_api(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed (extra [check])")
    snippet = tmp_path / "snippet.py"
    snippet.write_text(SNIPPET)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports", "silent"]
    done = subprocess.run(
        [*command, "--cache-dir", str(tmp_path / "cache"), "--ignore-missing-imports", snippet],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    revealed = re.findall(r'Revealed type is "(.*)"', done.stdout)
    assert re.match(
        r"def \(workload: pointsman\.workload\.workload\.Workload, .*Routed", revealed[0]
    )
    assert revealed[1] == "pointsman.core.errors.InputError"
    assert revealed[2].removeprefix("builtins.") == "str"
    assert 'Module has no attribute "no_such_name"' in done.stdout


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        _ = pointsman.no_such_name


def test_the_version_is_the_installed_one():
    from importlib.metadata import version

    assert pointsman.__version__ == version("pointsman")
