"""How much memory a group's engines held at most."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from pointsman.bench.engines.running import Running

HOST_SOURCE = (
    "the system: highest resident set of each process of the engines (VmHWM), added up; pages that"
    " they share count for each"
)
GPU_SOURCE = "nvidia-smi after the load: GPU memory of the engines' processes, added up"
NOT_OURS = "the engines were not started by us, so that their processes are not known"
NOT_TOLD = "the system tells nothing of the engines' memory"

_HIGHEST = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
_KIB_A_MIB = 1024.0
_PROBE_DEADLINE_S = 60.0
_QUERY = ("--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")


def peak_memory_mb(
    replicas: Iterable[Running], device: str, environment: Mapping[str, str]
) -> float | None:
    """MiB, since they were started; None where it is not told. Source: proc_pid_status(5)."""
    processes = [pid for each in replicas for pid in each.members()]
    if device == "gpu":
        return _on_gpus(processes, environment)
    found = [highest for pid in processes if (highest := _highest_mb(pid)) is not None]
    return sum(found) if found else None


def _highest_mb(process: int) -> float | None:
    with contextlib.suppress(OSError):
        told = _HIGHEST.search(Path(f"/proc/{process}/status").read_text())
        return int(told[1]) / _KIB_A_MIB if told else None
    return None


def _on_gpus(processes: Iterable[int], environment: Mapping[str, str]) -> float | None:
    tool = shutil.which("nvidia-smi", path=environment.get("PATH"))
    if tool is None:
        return None
    try:
        done = subprocess.run(
            [tool, *_QUERY], capture_output=True, text=True, timeout=_PROBE_DEADLINE_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    ours = set(map(str, processes))
    rows = [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines()]
    found = [float(memory) for pid, memory in rows if pid in ours and memory.isdecimal()]
    return sum(found) if found else None
