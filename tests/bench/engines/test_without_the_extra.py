"""Programs that need the extra, started where it is not installed."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

WITHOUT = """
import runpy
import sys
sys.modules[sys.argv[1]] = None
sys.argv = sys.argv[2:]
runpy.run_module(sys.argv[0], run_name="__main__")
"""
ENGINES = "pointsman.bench.engines"


@pytest.mark.parametrize(
    ("module", "program"),
    [
        ("gguf", (f"{ENGINES}.tiny_model",)),
        ("tokenizers", (f"{ENGINES}.tiny_model",)),
        ("xllamacpp", (f"{ENGINES}.llamacpp_server", "--model", "m.gguf", "--port", "1")),
    ],
)
def test_one_line_names_the_extra_and_how_to_add_it(tmp_path, module, program):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, module, *program],
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert f"{module} is not installed; it comes with the extra [llamacpp]: pip in" in done.stderr
    assert done.stderr.count("\n") == 1
