"""From a group of an experiment to the replicas that it is made of."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from pointsman.bench.engines.external import External
from pointsman.bench.engines.llamacpp import LlamaCpp
from pointsman.bench.engines.machine import Machine
from pointsman.bench.engines.placement import on_gpus
from pointsman.bench.engines.protocol import Engine, HandOff, Instance, Model, Role
from pointsman.bench.engines.sglang import Sglang
from pointsman.bench.engines.tiny_model import NEEDS as TINY_NEEDS
from pointsman.bench.engines.tiny_model import tiny_model, tiny_path
from pointsman.bench.engines.vllm import Vllm
from pointsman.bench.experiment import SPLIT, Experiment, Group
from pointsman.bench.hardware import usable_cores

TINY = "tiny"  # the id of the model that we make ourselves
LLAMACPP = "llamacpp"
CPU_NICENESS = 10  # engines on CPUs stand back, so that the client and the router are on time


def engine_of(experiment: Experiment) -> Engine:
    """What the experiment's engine is started by."""
    wanted = experiment.engine
    if wanted.name == "vllm":
        on_cpu = experiment.hardware.device == "cpu"
        command = wanted.command or "vllm"
        return Vllm(command, "cpu" if on_cpu else "gpu", wanted.cache_gib)
    if wanted.name == "sglang":
        return Sglang(wanted.command or sys.executable)
    if wanted.name == LLAMACPP:
        return LlamaCpp(wanted.command or sys.executable)
    return External()


def model_of(experiment: Experiment) -> Model:
    """What the engine serves, under the name that requests call it by.

    The model ``tiny`` of llama.cpp is made here, where it is not yet, and where it can be.
    """
    wanted = experiment.model
    path = wanted.id
    if _is_tiny(experiment):
        path = str(tiny_path() if missing_for_tiny(experiment) else tiny_model())
    name = wanted.served_name or _name_of(wanted.id)
    return Model(path, name, wanted.revision, wanted.tokenizer, wanted.dtype)


def missing_for_tiny(experiment: Experiment) -> tuple[str, ...]:
    """Modules without which the model cannot be made; none of one that is not made by us."""
    if not _is_tiny(experiment) or tiny_path().exists():
        return ()
    return tuple(name for name in TINY_NEEDS if find_spec(name) is None)


def _is_tiny(experiment: Experiment) -> bool:
    return experiment.model.id == TINY and experiment.engine.name == LLAMACPP


def _name_of(model: str) -> str:
    """An id of the hub as it is; of a file or folder its name."""
    is_local = model.startswith(("/", ".", "~")) or model.endswith(".gguf")
    return Path(model).name.removesuffix(".gguf") if is_local else model


def handoff_of(group: Group, engine: Engine, folder: Path) -> HandOff | None:
    """How its caches are handed over; through ``folder``, where that is by files."""
    if group.mode != SPLIT:
        return None
    return HandOff(group.handoff or engine.handoffs[0], folder)


def instances_of(
    experiment: Experiment, group: Group, model: Model, folder: Path
) -> tuple[Instance, ...]:
    """The replicas, those that prefill first; ``folder`` is where files are handed over."""
    wanted, engine = experiment.engine, engine_of(experiment)
    handoff = handoff_of(group, engine, folder)
    cores = cores_of(experiment, group)
    return tuple(
        Instance(
            model,
            tp=group.tp,
            pp=group.pp,
            role=role,
            handoff=handoff,
            max_running=wanted.max_running,
            context_tokens=wanted.context_tokens,
            cores=cores[number],
            flags=wanted.flags,
            niceness=CPU_NICENESS if experiment.hardware.device == "cpu" else 0,
            url=group.urls[number] if group.urls else None,
        )
        for number, role in enumerate(roles_of(group))
    )


def placed(instances: Sequence[Instance], machine: Machine, device: str) -> list[Instance]:
    """The same, each with its GPUs where they run on any. Raises InputError for too few."""
    return list(instances) if device == "cpu" else on_gpus(instances, machine.gpus)


def roles_of(group: Group) -> list[Role]:
    """What each of its replicas does."""
    if group.mode != SPLIT:
        return ["none" for _ in range(group.engines)]
    prefills, decodes = group.prefills or 0, group.decodes or 0
    return ["prefill" if number < prefills else "decode" for number in range(prefills + decodes)]


def cores_of(experiment: Experiment, group: Group) -> list[tuple[int, ...]]:
    """The cores of each replica, of which no two have one in common; none: it has any.

    Where the machine has too few, which is missing then, they are numbered from 0.
    """
    wanted = experiment.cores_of(group)
    if not wanted:
        return [()] * group.engines
    have = usable_cores()
    cores = have if wanted <= len(have) else list(range(wanted))
    each = wanted // group.engines
    return [tuple(cores[n * each : (n + 1) * each]) for n in range(group.engines)]
