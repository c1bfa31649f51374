"""The machine and its memory, as evidence states them; the driver's tool is a stand-in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pointsman.bench.engines.processes import Process
from pointsman.bench.hardware import hardware_of
from pointsman.bench.memory import peak_memory_mb
from tests.bench.engines.stand_in_engine import wait_until

MIB = 1 << 20
HOLDS = f"block = bytearray({64 * MIB}); print('ready', flush=True); input()"


@pytest.fixture
def tool(tmp_path):
    """Puts an ``nvidia-smi`` on a PATH of its own that says these lines."""

    def says(*lines: str, code: int = 0) -> dict[str, str]:
        script = tmp_path / "nvidia-smi"
        said = "".join(f"echo '{line}'\n" for line in lines)
        script.write_text(f"#!/bin/sh\n{said}exit {code}\n")
        script.chmod(0o755)
        return {"PATH": f"{tmp_path}:/bin:/usr/bin"}

    return says


def test_on_gpus_it_names_them_their_memory_and_the_driver(tool):
    found = hardware_of("gpu", tool("NVIDIA H200, 143771, 570.1", "NVIDIA H200, 143771, 570.1"))
    assert (found.accelerator, found.accelerators) == ("NVIDIA H200", 2)
    assert (found.accelerator_memory_mb, found.driver) == (143771.0, "570.1")


def test_on_cpus_gpus_that_are_there_are_not_asked_for(tool):
    found = hardware_of("cpu", tool("NVIDIA H200, 143771, 570.1"))
    assert (found.accelerator, found.accelerators) == (None, 0)
    assert found.cores == os.cpu_count()
    assert found.memory_mb > 0


def test_a_driver_that_does_not_answer_is_no_gpu(tool):
    assert hardware_of("gpu", tool("no devices were found", code=9)).accelerators == 0
    assert hardware_of("gpu", {"PATH": "/nowhere"}).accelerator is None


class Holder:
    """As much of a running replica as its memory is asked of."""

    def __init__(self, *processes: int) -> None:
        self.processes = list(processes)

    def members(self) -> list[int]:
        return self.processes


@pytest.mark.skipif(sys.platform != "linux", reason="the high-water mark is Linux's")
def test_the_peak_is_what_the_processes_held_at_most_added_up(tmp_path):
    command = [sys.executable, "-c", HOLDS]
    with (
        subprocess.Popen(command, stdin=-1, stdout=-1) as one,
        subprocess.Popen(command, stdin=-1, stdout=-1) as other,
    ):
        for each in (one, other):
            assert each.stdout.readline() == b"ready\n"
        alone = peak_memory_mb([Holder(one.pid)], "cpu", {})
        both = peak_memory_mb([Holder(one.pid), Holder(other.pid)], "cpu", {})
        for each in (one, other):
            each.communicate(b"\n")
    assert 64 < alone < 64 + 64  # the block, and a Python
    assert both == pytest.approx(2 * alone, rel=0.1)


@pytest.mark.skipif(sys.platform != "linux", reason="the high-water mark is Linux's")
def test_all_processes_of_a_replica_count(tmp_path):
    starts = f"subprocess.Popen([sys.executable, '-c', {HOLDS!r}], stdin=-1).wait()"
    code = f"import subprocess, sys; {starts}"
    process = Process([sys.executable, "-c", code], tmp_path / "log", {}, 1.0)
    try:
        wait_until(lambda: "\nready\n" in (tmp_path / "log").read_text())
        assert len(process.members()) == 2
        assert peak_memory_mb([process], "cpu", {}) > 64
    finally:
        process.stop()


def test_memory_of_gpus_is_that_of_the_engines_processes_alone(tool):
    environment = tool("101, 5000", "102, 700", "999, 30000", "103, [N/A]")
    replicas = [Holder(101), Holder(102, 103)]
    assert peak_memory_mb(replicas, "gpu", environment) == 5700.0


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_memory_that_nobody_tells_is_not_known(device, tool):
    gone = Holder(int(Path("/proc/sys/kernel/pid_max").read_text()))  # no process has it
    assert peak_memory_mb([gone], device, tool("101, 5000")) is None
    assert peak_memory_mb([Holder()], device, {"PATH": "/nowhere"}) is None
