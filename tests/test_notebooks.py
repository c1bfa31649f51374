"""The lessons as notebooks: their code runs from top to bottom, and what they assert holds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "examples/lessons").glob("*.ipynb"))

each = pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)


def cells(notebook, kind):
    document = json.loads(notebook.read_text())
    return [cell for cell in document["cells"] if cell["cell_type"] == kind]


def test_both_lessons_are_there():
    assert [path.stem for path in NOTEBOOKS] == ["lesson1_routing", "lesson2_serving_shapes"]


@each
def test_the_cells_of_a_notebook_run_in_order_and_its_assertions_hold(notebook):
    # Plain Python in a process of its own: what a kernel would run, without one.
    code = "\n\n".join("".join(cell["source"]) for cell in cells(notebook, "code"))
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(
        command, cwd=notebook.parent, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@each
def test_a_notebook_is_stored_without_outputs(notebook):
    stored = [(cell["outputs"], cell["execution_count"]) for cell in cells(notebook, "code")]
    assert stored == [([], None)] * len(stored)


@each
def test_every_heading_has_a_summary_in_chinese(notebook):
    headings = [cell for cell in cells(notebook, "markdown") if cell["source"][0].startswith("#")]
    assert [cell for cell in headings if "**中文" not in "".join(cell["source"])] == []
