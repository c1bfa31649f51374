"""What an experiment needs and this machine has not, all at once, each with its fix.

What an engine needs by itself (its program, its modules, its model's files) it says itself; that
is handed in.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pointsman.bench.engines.machine import visible_gpus
from pointsman.bench.experiment import Experiment, policy_from
from pointsman.bench.hardware import memory_mb, usable_cores
from pointsman.bench.missing import Missing
from pointsman.core.errors import PointsmanError
from pointsman.core.files import check_is_file
from pointsman.policies.catalogue import policy_named

_TORCHRUN_FIX = "pip install 'pointsman[torch]'"


@dataclass(frozen=True, slots=True)
class Host:
    """The machine, as far as an experiment asks. ``found``: where a program is, as ``which``."""

    gpus: int
    cores: int
    memory_mb: float
    found: Callable[[str], str | None]
    is_free: Callable[[int], bool]  # whether a port can be listened on

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Host:
        """This machine, as far as that environment lets it be used."""
        path = environment.get("PATH")
        return cls(
            gpus=len(visible_gpus(environment)),
            cores=len(usable_cores()),
            memory_mb=memory_mb(),
            found=lambda program: shutil.which(program, path=path),
            is_free=_is_free,
        )


@dataclass(frozen=True, slots=True)
class Plans:
    """One run of an experiment to be: its file, the folder of its label, its ports.

    ``results``: None: a new label is found when it begins.
    """

    experiment: Experiment
    file: Path
    results: Path | None = None
    ports: tuple[int, ...] = ()


def missing_for(plans: Plans, host: Host, of_engine: Sequence[Missing]) -> tuple[Missing, ...]:
    """Everything that is not there; empty where the experiment can begin."""
    return (*of_engine, *_of_machine(plans, host), *_of_files(plans), *_of_programs(plans, host))


def _of_machine(plans: Plans, host: Host) -> Iterator[Missing]:
    wanted, world_size = plans.experiment.hardware, plans.experiment.world_size
    if wanted.device == "gpu" and host.gpus < world_size:
        yield Missing(
            f"GPUs: {world_size} for the largest group, {host.gpus} visible",
            "a machine that has them (nvidia-smi, CUDA_VISIBLE_DEVICES), fewer replicas, or"
            ' device = "cpu" with an engine that runs there',
        )
    cores = max(map(plans.experiment.cores_of, plans.experiment.groups))
    if host.cores < cores:
        yield Missing(
            f"cores: {cores} for the largest group, {wanted.cores_per_rank} a rank, {host.cores}"
            " usable",
            "a machine that has them, fewer replicas, or a smaller hardware.cores_per_rank",
        )
    if wanted.memory_mb is not None and host.memory_mb < wanted.memory_mb:
        yield Missing(
            f"memory: {wanted.memory_mb:,.0f} MB, this machine has {host.memory_mb:,.0f}",
            "a larger machine, a smaller model, or fewer replicas",
        )
    for port in plans.ports:
        if not host.is_free(port):
            yield Missing(f"the port {port}, on which somebody listens", "another port, or stop it")


def _of_files(plans: Plans) -> Iterator[Missing]:
    experiment = plans.experiment
    if experiment.workload.trace is not None:
        try:
            check_is_file(plans.file.parent / experiment.workload.trace)
        except PointsmanError as error:
            yield Missing(f"the trace: {error}", "a path seen from the experiment's folder")
    for text in dict.fromkeys(text for group in experiment.groups for text in group.policies):
        try:
            policy_named(policy_from(text, plans.file.parent))
        except PointsmanError as error:
            yield Missing(f"the policy: {error}", "FILE.py:NAME of a file that is there")
    if plans.results is not None and os.path.lexists(plans.results):
        yield Missing(
            f"a new place for {plans.results}: results are never overwritten", "another --label"
        )


def _of_programs(plans: Plans, host: Host) -> Iterator[Missing]:
    own = (group.command[0] for group in plans.experiment.groups if group.command)
    for program in dict.fromkeys(own):
        if host.found(program) is None:
            fix = _TORCHRUN_FIX if program == "torchrun" else "its path, or a PATH that has it"
            yield Missing(f"the program {program}, which a group's command names", fix)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
