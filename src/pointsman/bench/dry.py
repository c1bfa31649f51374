"""What an experiment would run, as commands that a shell takes; nothing is started or written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pointsman.bench.engines.processes import shown
from pointsman.bench.engines.protocol import Ports
from pointsman.bench.engines.running import launch_of
from pointsman.bench.experiment import SPLIT, GroupRun
from pointsman.bench.groups import Bench, asked_for
from pointsman.bench.router import Behind, as_typed, command_of
from pointsman.bench.shapes import handoff_of, instances_of, placed
from pointsman.core.errors import PointsmanError

_FIRST_PORT, _FIRST_MEETING, _ROUTER_PORT = 8001, 9001, 8000


def would_run(bench: Bench) -> str:
    """A paragraph a group; when it runs, ports are free ones, and GPUs those that are there."""
    experiment = bench.experiment
    text = "".join(_paragraph(bench, run) for run in experiment.runs())
    order = "one group after the other" if experiment.order == "given" else "forwards, backwards"
    return f"{text}{experiment.repeats} repeats of each, {order}\n"


def _paragraph(bench: Bench, run: GroupRun) -> str:
    try:
        lines = list(_lines(bench, run))
    except PointsmanError as error:
        lines = [f"cannot run: {error}"]
    return f"{run.name}\n" + "".join(f"  {line}\n" for line in lines)


def _lines(bench: Bench, run: GroupRun) -> Iterator[str]:
    group = run.group
    if group.command:
        yield shown(group.command, {})
        return
    device, world_size = bench.experiment.hardware.device, bench.experiment.world_size
    wanted = instances_of(bench.experiment, group, bench.model, bench.handoffs(run))
    there = bench.machine.gpus if len(bench.machine.gpus) >= world_size else ()
    gpus = there or tuple(map(str, range(world_size)))
    instances = placed(wanted, replace(bench.machine, gpus=gpus), device)
    behind = []
    for number, instance in enumerate(instances):
        ports = Ports(_FIRST_PORT + number, _FIRST_MEETING + number)
        launch = launch_of(bench.engine, instance, ports)
        behind.append(Behind(launch.url, instance.role, launch.bootstrap_port))
        if launch.command:
            yield shown(launch.command, dict(launch.environment))
        else:
            yield f"{launch.url}, which runs already"
    handoff = handoff_of(group, bench.engine, Path()) if group.mode == SPLIT else None
    asked = asked_for(bench, run, f"{run.name}-1", handoff.protocol if handoff else None)
    if asked is not None:
        yield shown(as_typed(command_of(asked, behind, _ROUTER_PORT)), {})
