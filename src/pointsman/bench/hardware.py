"""The machine that a run was on, as evidence states it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from pointsman.evidence.envelope import Hardware

_MIB = 1024.0 * 1024.0
_PROBE_DEADLINE_S = 60.0
_QUERY = ("--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits")


def processor() -> str:
    """The processor's name, as Linux knows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "unknown")


def memory_mb() -> float:
    """Of the host, MiB."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _MIB


def usable_cores() -> list[int]:
    """Those that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def hardware_of(device: str, environment: Mapping[str, str]) -> Hardware:
    """This machine, whole; its GPUs, by the driver's tool, only where ``device`` is ``gpu``."""
    host = Hardware(cpu=processor(), cores=os.cpu_count() or 1, memory_mb=memory_mb())
    if device == "cpu":
        return host
    found = _gpus(environment)
    if not found:
        return host
    name, memory, driver = found[0]
    return Hardware(
        cpu=host.cpu,
        cores=host.cores,
        memory_mb=host.memory_mb,
        accelerator=name,
        accelerators=len(found),
        accelerator_memory_mb=float(memory),
        driver=driver,
    )


def _gpus(environment: Mapping[str, str]) -> list[list[str]]:
    """Name, memory in MiB and driver of each."""
    tool = shutil.which("nvidia-smi", path=environment.get("PATH"))
    if tool is None:
        return []
    try:
        done = subprocess.run(
            [tool, *_QUERY], capture_output=True, text=True, timeout=_PROBE_DEADLINE_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]
    return [row for row in rows if len(row) == len(_QUERY[0].split(","))]
