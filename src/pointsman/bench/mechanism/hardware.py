"""The machine that a run was on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pointsman.bench.mechanism.result import ON_GPUS, Profile
from pointsman.evidence.envelope import Hardware

_MIB = 1024.0 * 1024.0


def hardware_of(torch: Any, profile: Profile) -> Hardware:
    """This machine; its GPUs where the run is on them, of one kind as the first one."""
    cpu, cores = processor(), os.cpu_count() or 1
    memory_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / _MIB
    if profile != ON_GPUS:
        return Hardware(cpu=cpu, cores=cores, memory_mb=memory_mb)
    first = torch.cuda.get_device_properties(0)
    return Hardware(
        cpu=cpu,
        cores=cores,
        memory_mb=memory_mb,
        accelerator=str(first.name),
        accelerators=torch.cuda.device_count(),
        accelerator_memory_mb=first.total_memory / _MIB,
    )


def processor() -> str:
    """The processor's name, as Linux knows it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return "unknown"
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "unknown")
