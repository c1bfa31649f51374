"""The machine that a run was on."""

from __future__ import annotations

import os
from typing import Any

from pointsman.bench.hardware import memory_mb, processor
from pointsman.bench.mechanism.result import ON_GPUS, Profile
from pointsman.evidence.envelope import Hardware

_MIB = 1024.0 * 1024.0


def hardware_of(torch: Any, profile: Profile) -> Hardware:
    """This machine; its GPUs where the run is on them, of one kind as the first one."""
    cpu, cores = processor(), os.cpu_count() or 1
    if profile != ON_GPUS:
        return Hardware(cpu=cpu, cores=cores, memory_mb=memory_mb())
    first = torch.cuda.get_device_properties(0)
    return Hardware(
        cpu=cpu,
        cores=cores,
        memory_mb=memory_mb(),
        accelerator=str(first.name),
        accelerators=torch.cuda.device_count(),
        accelerator_memory_mb=first.total_memory / _MIB,
    )
