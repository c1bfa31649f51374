"""The compile cache: found by every later process, never serving other code."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pointsman

PACKAGE = Path(pointsman.__file__).parent

PROBE = """
import numpy as np
from pointsman import POLICIES, FifoFleet, simulate, workload_of_columns
from pointsman.sim.fifo_loop import fifo_loop
rule = POLICIES["queue_aware"]
routed = simulate(workload_of_columns([0.0, 0.0, 0.0], service_ms=[9.0, 5.0, 1.0]), rule,
                  FifoFleet(3))
compiled = (rule.choose, fifo_loop(rule.reads, True).dispatcher)
hits = [sum(dispatcher.stats.cache_hits.values()) for dispatcher in compiled]
print(routed.replica.tolist(), hits)
"""


def probe(package_folder: Path, cache: str) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": str(package_folder),
        "XDG_CACHE_HOME": cache,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.strip()


@pytest.fixture
def copied(tmp_path):
    """A copy of the package, as an install has it."""
    shutil.copytree(
        PACKAGE, tmp_path / "site" / "pointsman", ignore=shutil.ignore_patterns("__pycache__")
    )
    return tmp_path / "site"


def files_of(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_every_later_process_finds_the_compiled_code(copied, tmp_path):
    cache = str(tmp_path / "cache")
    assert probe(copied, cache) == "[0, 1, 2] [0, 0]"
    assert probe(copied, cache) == "[0, 1, 2] [1, 1]"


def test_nothing_is_written_beside_the_sources(copied, tmp_path):
    before = files_of(copied)
    probe(copied, str(tmp_path / "cache"))
    assert files_of(copied) == before


def test_a_change_in_a_helper_of_another_file_is_never_served_old_code(copied, tmp_path):
    cache = str(tmp_path / "cache")
    probe(copied, cache)
    helper = copied / "pointsman" / "policies" / "waits.py"
    changed = helper.read_text().replace("        if this_ms <= 0.0:\n            return i\n", "")
    helper.write_text(changed.replace("if this_ms < best_ms:", "if this_ms <= best_ms:"))
    assert probe(copied, cache) == "[2, 1, 0] [0, 0]"


def test_without_a_folder_to_write_in_it_compiles_and_runs(copied):
    assert probe(copied, "/dev/null/nowhere") == "[0, 1, 2] [0, 0]"


def test_a_users_policy_is_cached_too_and_follows_its_file(tmp_path):
    script = tmp_path / "mine.py"
    source = """
from pointsman.policies.policy import policy

@policy(rule="r", source="s", reasons=("r",), reads=())
def mine(request, view, parameters):
    return CHOICE, 0
"""
    show = (
        f"from pointsman import policy_named; p = policy_named('{script}:mine');"
        "import numpy as np; from pointsman.policies.policy import REQUEST;"
        "print(p.choose(np.zeros(1, REQUEST)[0], np.zeros((3, 9)), p.parameter_values)[0],"
        "sum(p.choose.stats.cache_hits.values()))"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("NUMBA_CACHE_DIR", None)

    def shown(choice: int) -> str:
        script.write_text(source.replace("CHOICE", str(choice)))
        command = [sys.executable, "-c", show]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True, timeout=60
        ).stdout.strip()

    assert [shown(1), shown(1), shown(2)] == ["1 0", "1 1", "2 0"]


@pytest.mark.parametrize("damage", ["cut", "scrambled", "emptied"])
def test_a_damaged_cache_is_replaced(copied, tmp_path, damage):
    cache = tmp_path / "cache"
    probe(copied, str(cache))
    for file in [*cache.rglob("*.nbi"), *cache.rglob("*.nbc")]:
        content = file.read_bytes()
        half = len(content) // 2
        damaged = {
            "cut": content[:half],
            "scrambled": bytes(255 - byte for byte in content),
            "emptied": b"",
        }
        file.write_bytes(damaged[damage])
    assert probe(copied, str(cache)) == "[0, 1, 2] [0, 0]"
    assert probe(copied, str(cache)) == "[0, 1, 2] [1, 1]"


def test_a_constant_from_a_users_other_file_is_followed(tmp_path):
    constants, script = tmp_path / "constants.py", tmp_path / "theirs.py"
    script.write_text(
        "from constants import CHOICE\n"
        "from pointsman.policies.policy import policy\n"
        "@policy(rule='r', source='s', reasons=('r',), reads=())\n"
        "def theirs(request, view, parameters):\n"
        "    return CHOICE, 0\n"
    )
    assert [chosen_by(script, constants, f"CHOICE = {k}\n", tmp_path) for k in (1, 2)] == ["1", "2"]


def test_a_users_helper_in_another_file_is_followed_too(tmp_path):
    aside, script = tmp_path / "aside.py", tmp_path / "theirs.py"
    script.write_text(
        "from aside import choice\n"
        "from pointsman.policies.policy import policy\n"
        "@policy(rule='r', source='s', reasons=('r',), reads=())\n"
        "def theirs(request, view, parameters):\n"
        "    return choice(), 0\n"
    )
    source = "from pointsman.core.compiled import helper\n@helper\ndef choice():\n    return {}\n"
    assert [chosen_by(script, aside, source.format(k), tmp_path) for k in (1, 2)] == ["1", "2"]


def chosen_by(script: Path, other: Path, source: str, folder: Path) -> str:
    """What the policy ``theirs`` of the script chooses with that source in the other file."""
    other.write_text(source)
    show = (
        f"from pointsman import policy_named; p = policy_named('{script}:theirs');"
        "import numpy as np; from pointsman.policies.policy import REQUEST;"
        "print(p.choose(np.zeros(1, REQUEST)[0], np.zeros((3, 9)), p.parameter_values)[0])"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    environment.pop("NUMBA_CACHE_DIR", None)
    command = [sys.executable, "-B", "-c", show]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()
