"""The commands of the README, run one after the other in a clean clone."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from tests.documentation import (
    REPLICA_PORTS,
    ROOT,
    Served,
    blocks,
    clean_clone,
    environment,
    fake_replicas,
    free,
    python,
    shell,
)

PAGES = ("README.md", "README.zh-CN.md")

pytestmark = pytest.mark.readme


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    return clean_clone(tmp_path_factory.mktemp("clean") / "pointsman")


def test_every_command_of_the_readme_runs(clone):
    """Of one language: both pages have the same blocks."""
    served = None
    with fake_replicas():
        for language, script in blocks("README.md"):
            if language == "python":
                python(script, clone)
            if language != "sh":
                continue
            if script.startswith("pointsman serve"):
                served = Served(script, clone)
                continue
            if served is not None and script.startswith("pointsman replay"):
                served.stop()
                served = None
            shell(script, clone)
    assert served is None
    assert json.loads((clone / "out/demo.json").read_text())["schema"] == "pointsman.compare/1"
    assert shell("git status --porcelain", clone) == ""


@pytest.mark.engine
def test_the_replicas_of_the_readme_start(clone):
    for needed in ("xllamacpp", "gguf", "tokenizers"):
        pytest.importorskip(needed, reason=f"{needed} is missing: pip install pointsman[llamacpp]")
    (script,) = (text for language, text in blocks("README.md") if language == "bash")
    process = subprocess.Popen(
        ["bash", "-euo", "pipefail", "-c", f"{script}wait"],
        cwd=clone,
        env=environment(),
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 120
        while any(map(free, REPLICA_PORTS)):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def demo() -> str:
    """What the command of `make demo` prints."""
    command = [sys.executable, "-m", "pointsman", "compare", "examples/conversation.jsonl.gz"]
    done = subprocess.run(
        [*command, "--replicas", "4"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.parametrize("document", PAGES)
def test_the_answer_of_the_demo_is_the_one_on_the_page(demo, document):
    shown = next(text for language, text in blocks(document) if language == "text")
    assert demo.endswith(shown)


@pytest.mark.parametrize("document", PAGES)
def test_the_figures_of_the_prose_are_those_of_the_demo(demo, document):
    prose = re.sub(r"^```.*?^```$", "", (ROOT / document).read_text(), flags=re.M | re.S)
    assert [figure for figure in re.findall(r"\d+\.\d%", prose) if figure not in demo] == []


def test_both_pages_have_the_same_blocks():
    ours, theirs = map(blocks, PAGES)
    assert ours == theirs


def test_the_policy_of_the_documentation_compiles_and_runs(tmp_path):
    (source,) = (text for language, text in blocks("docs/policies.md") if language == "python")
    (tmp_path / "cheapest.py").write_text(source)
    command = [sys.executable, "-m", "pointsman", "compare", "examples/conversation.jsonl.gz"]
    flags = ["--replicas", "4", "--policy", f"{tmp_path}/cheapest.py:cheapest"]
    done = subprocess.run([*command, *flags], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "Only cheapest(prefill_ms_per_token=0.05) was run" in done.stdout


@pytest.mark.parametrize("document", ["docs/costs.md"])
def test_the_commands_of_a_page_run(clone, document):
    for language, script in blocks(document):
        if language == "sh":
            shell(script, clone)
