"""``pointsman bench`` while it runs, on a terminal and on a pipe, and whatever ends it early.

Engines are processes of its own: the stand-in for vLLM.
"""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from pointsman.cli.main import main
from pointsman.evidence.metrics import METRIC_NAMES
from tests.bench.engines.stand_in_engine import wait_until
from tests.bench.experiments import (
    bench,
    command,
    environment,
    group_in,
    rows_of,
    vllm_here,
    written,
)
from tests.interrupts import interruptible

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")

DEADLINE_S = 240.0  # the first start of a version compiles
G0 = 'name = "g0"\nreplicas = 1\n'
G1 = 'name = "g1"\nreplicas = 2\npolicies = ["round_robin"]\n'
HALF = "echo {} > $POINTSMAN_RESULT; echo begun; sleep 3600; : {result}"
OWN = f'name = "own"\nreplicas = 1\ncommand = ["sh", "-c", "{HALF}"]\n'
# As a shell does: a session whose terminal stdin is, where Ctrl-C is heard.
ON_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, sys.argv[1:])
"""


def left_of(folder: Path) -> list[int]:
    """Processes in whose command this folder is: supervisors, engines, routers, ourselves."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if entry.name.isdecimal() and os.fsencode(folder) in words:
            found.append(int(entry.name))
    return found


@dataclass
class Terminal:
    """``said``: what was written on it so far."""

    descriptor: int
    said: str = ""

    def read(self) -> bool:
        """Some more; False: everybody has closed it."""
        try:
            self.said += os.read(self.descriptor, 65536).decode()
        except OSError:
            return False
        return True

    def read_until(self, pattern: str) -> None:
        while re.search(pattern, self.said) is None:
            assert self.read(), self.said


@dataclass
class Interrupted:
    folder: Path
    code: int
    said: str
    left: list[int]


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory) -> Interrupted:
    """Two groups on a terminal; Ctrl-C in the middle of the second one's load."""
    at = tmp_path_factory.mktemp("terminal")
    tables = vllm_here(at, ["--ms-a-token", "5"])
    file = written(at, [G0, G1], head="repeats = 1", requests=30, rate_rps=8.0, **tables)
    ours, theirs = pty.openpty()
    with interruptible():
        process = subprocess.Popen(
            [sys.executable, "-c", ON_TERMINAL, *command(file)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment(),
        )
    os.close(theirs)
    terminal = Terminal(ours)
    try:
        terminal.read_until(r"g1 1 of 1: [^\r]*, \d+ of 30 sent, [3-9] ended")
        os.write(ours, b"\x03")
        while terminal.read():
            pass
        code = process.wait(DEADLINE_S)
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    wait_until(lambda: not left_of(at), DEADLINE_S)
    return Interrupted(at / "results" / "run-1", code, terminal.said, left_of(at))


def test_on_a_terminal_one_line_is_written_over_with_where_the_load_is(interrupted):
    lines = interrupted.said.split("\r\x1b[K")[1:]
    first = [line for line in lines if line.startswith("g0 1 of 1: ")]
    assert len(first) > 2
    assert re.match(r"g0 1 of 1: \d+ s, \d+ of 30 sent, \d+ ended, \S+/s, 0 errors", first[0])
    assert ", TTFT " in first[-1]
    assert all("\n" not in line for line in first[:-1])
    assert "30 of 30 sent, 30 ended" in first[-1]
    assert first[-1].partition("\r\n")[2].startswith("g1: starting 2 replicas")


def test_ctrl_c_ends_it_with_130_and_leaves_neither_engines_nor_router(interrupted):
    assert interrupted.code == 130
    assert interrupted.left == []


def test_what_was_measured_before_it_is_whole(interrupted):
    group = group_in(interrupted.folder, "g0")
    assert group["failure"] is None
    assert group["statuses"]["ok"] == 30


def test_what_it_interrupted_is_there_as_rows_and_is_no_result(interrupted):
    group = group_in(interrupted.folder, "g1")
    assert group["failure"]["stage"] == "interrupted"
    assert "pointsman bench" in group["failure"]["retry"]
    assert all(group["metrics"][name] is None for name in METRIC_NAMES)
    (repeat,) = group["repeats"]
    rows = rows_of(interrupted.folder, repeat)
    assert 3 <= len(rows) < 30
    assert repeat["invalid"].endswith(f"incomplete: {len(rows)} of 30 requests were offered before"
                                      " it was interrupted")  # fmt: skip
    assert len([row for row in rows if row["status"] == "ok"]) == repeat["statuses"]["ok"] >= 3
    assert {row["status"] for row in rows} <= {"ok", "cancelled"}


def test_interrupted_files_are_sound_and_the_table_says_what_became_of_them(interrupted, capsys):
    files = [str(interrupted.folder / f"{name}.json") for name in ("g0", "g1")]
    assert main(["evidence", "check", *files]) == 0, capsys.readouterr().out
    assert "g1 failed at interrupted: it was told to end during the load" in interrupted.said


def test_engines_that_it_started_are_stated_with_command_version_memory_and_format(interrupted):
    group = group_in(interrupted.folder, "g0")
    backend = group["backend"]
    (started,) = backend["commands"]
    assert "VLLM_SERVER_DEV_MODE=1" in started
    assert started.endswith("--ms-a-token 5")
    assert backend["version"] == group["versions"]["vllm"] == "0.32.0+cpu"
    assert backend["model"]["dtype"] == "bfloat16"
    assert backend["model"]["revision"].startswith("listing-sha256:")
    assert group["metrics"]["peak_memory_mb"] > 5  # a Python
    assert group["details"]["peak_memory_mb"]["source"].startswith("the system: ")
    assert group["repeats"][0]["cache"] == "reset"


@pytest.fixture
def begun(tmp_path):
    """Starts it over these groups; its stderr and stdout are pipes."""
    processes = []

    def begin(*groups: str, **more) -> subprocess.Popen:
        tables = vllm_here(tmp_path, ["--ms-a-token", "5"])
        file = written(tmp_path, groups, head="repeats = 1", **more, **tables)
        with interruptible():
            process = subprocess.Popen(
                command(file, "--label", "it"),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env=environment(),
            )
        processes.append(process)
        return process

    yield begin
    for each in processes:
        each.kill()
        each.communicate()


def test_on_a_pipe_a_line_comes_now_and_then_and_sigterm_ends_all_of_it(begun, tmp_path):
    process = begun(G1, requests=4000, rate_rps=20.0)
    line = ""
    while not line.startswith("g1 1 of 1: "):
        line = process.stderr.readline()
        assert line, "it ended"
    assert re.fullmatch(
        r"g1 1 of 1: \d+ s, \d+ of 4000 sent, \d+ ended, \S+/s, 0 errors, TTFT \S+ ms\n", line
    )
    assert len(left_of(tmp_path)) >= 1 + 2 * 2 + 2  # with supervisors of two engines and a router
    process.send_signal(signal.SIGTERM)
    assert process.wait(DEADLINE_S) in (130, 143)
    wait_until(lambda: not left_of(tmp_path), DEADLINE_S)
    group = group_in(tmp_path / "results" / "it", "g1")
    assert group["failure"]["stage"] == "interrupted"
    assert group["repeats"][0]["statuses"]["ok"] > 0


def test_when_it_is_killed_no_engine_and_no_router_is_left(begun, tmp_path):
    process = begun(G1, requests=4000, rate_rps=20.0)
    log = tmp_path / "results" / "it" / "rows" / "g1-1.decisions.jsonl"
    wait_until(log.exists, DEADLINE_S)
    assert len(left_of(tmp_path)) >= 1 + 2 * 2 + 2
    process.kill()
    wait_until(lambda: not left_of(tmp_path), DEADLINE_S)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]
)
def test_a_groups_own_program_ends_with_it(begun, tmp_path, number, code):
    """What it had written by then is no result, as far as anybody is left to move it."""
    process = begun(OWN)
    folder = tmp_path / "results" / "it"
    log = folder / "logs" / "own.log"
    wait_until(lambda: log.exists() and "\nbegun\n" in log.read_text(), DEADLINE_S)
    process.send_signal(number)
    assert process.wait(DEADLINE_S) == code
    wait_until(lambda: not left_of(tmp_path), DEADLINE_S)
    if number != signal.SIGKILL:
        assert list(folder.glob("*.json")) == []
        assert (folder / "logs" / "own.left.json").read_text() == "{}\n"


def test_an_engine_that_does_not_start_is_a_failed_group_with_its_last_lines(tmp_path, capsys):
    file = written(tmp_path, [G0], **vllm_here(tmp_path, ["--no-such-flag"]))
    assert bench(file) == 1
    group = group_in(tmp_path / "results" / "run-1", "g0")
    assert group["failure"]["stage"] == "start"
    assert "it ended before it was ready (code 2)" in group["failure"]["reason"]
    assert "unrecognized arguments: --no-such-flag" in group["failure"]["reason"]
    assert "g0: failed at start: " in capsys.readouterr().err
    assert left_of(tmp_path) == []


def test_a_groups_own_file_is_one_of_the_results(tmp_path, capsys):
    """It is measured, tabulated, and decided with ours."""
    made = {"backend": "mine", "workload": "w", "hardware": "h", "evidence_level": "simulation"}
    made |= {"metrics": dict.fromkeys(METRIC_NAMES, 1.0), "failure": None, "decision": None}
    (tmp_path / "made.json").write_text(json.dumps(made))
    copies = json.dumps(["cp", str(tmp_path / "made.json"), "{result}"])
    fails = '["sh", "-c", "echo out of luck; exit 5"]'
    groups = [
        f'name = "own"\nreplicas = 1\ncommand = {copies}\n',
        f'name = "other"\nreplicas = 1\ncommand = {fails}\n',
    ]
    assert bench(written(tmp_path, groups, **vllm_here(tmp_path))) == 1
    folder = tmp_path / "results" / "run-1"
    assert group_in(folder, "own") == made
    assert group_in(folder, "other")["failure"]["stage"] == "command"
    assert "out of luck" in group_in(folder, "other")["failure"]["reason"]
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[:3] if line] == ["group", "own", "other"]
