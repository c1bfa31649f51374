"""All groups of an experiment, one after the other: what is missing, then engines, load, files.

    plan_of(file)     the experiment, its requests, where results go; nothing is started
    missing(plan)     what this machine lacks
    run(plan)         every repeat of every group; a file a group

A group that fails leaves a file that says so, and the others go on. Interrupted, what was measured
is written, and what was not begun is not there.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pointsman.bench.client.progress import Progress, Watch
from pointsman.bench.engines.machine import Machine
from pointsman.bench.engines.protocol import Instance, Ports
from pointsman.bench.engines.running import ports_for
from pointsman.bench.engines.tiny_model import EXTRA
from pointsman.bench.experiment import Experiment, GroupRun, Turn
from pointsman.bench.group_file import Backend, Collected, backend_of, write_group
from pointsman.bench.groups import Aside, Bench, GroupError, Serving, measured, serving, stage
from pointsman.bench.installed import install_command
from pointsman.bench.missing import Missing
from pointsman.bench.own_command import run_command
from pointsman.bench.preflight import Host, Plans, missing_for
from pointsman.bench.probing import Probed, probed
from pointsman.bench.requests import loop_of, requests_of
from pointsman.bench.shapes import engine_of, instances_of, missing_for_tiny, model_of
from pointsman.core.errors import InputError, PointsmanError
from pointsman.evidence.envelope import Failure
from pointsman.workload.workload import Workload, workload_of_columns

INTERRUPTED = "interrupted"
_NO_PORTS = Ports(0, 0)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Shown:
    """How a run is watched: sentences, and facts about the load that is being sent."""

    say: Say = lambda _: None
    progress: Callable[[str, Progress], None] = lambda _name, _progress: None


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What came of it; ``files`` in the order of the groups."""

    files: tuple[Path, ...]
    failures: dict[str, Failure]  # by group
    is_interrupted: bool


def bench_of(
    experiment: Experiment, file: Path, folder: Path, environment: Mapping[str, str]
) -> Bench:
    """Everything that the groups share; the requests are read or drawn here.

    ``folder`` is that of the label. Of a trace that is not there, which is missing then, there are
    no requests. Raises InputError for requests that are none, and for a shape that its engine
    cannot have.
    """
    workload = _requests(experiment, file)
    if len(workload) and experiment.warmup_requests >= len(workload):
        raise InputError(
            f"{file}: warmup_requests is {experiment.warmup_requests}; expected fewer than the"
            f" {len(workload)} requests of the workload, of which they are the first"
        )
    bench = Bench(
        experiment=experiment,
        file=file,
        folder=folder,
        engine=engine_of(experiment),
        model=model_of(experiment),
        workload=workload,
        loop=loop_of(experiment.workload),
        machine=Machine.of(environment),
        environment=dict(environment),
    )
    for instances in instances_of_all(bench):
        for instance in instances:
            bench.engine.launch(instance, _NO_PORTS)  # starts nothing; refuses what cannot be
    return bench


def _requests(experiment: Experiment, file: Path) -> Workload:
    trace = experiment.workload.trace
    if trace is not None and not (file.parent / trace).is_file():
        return workload_of_columns([])
    return requests_of(experiment.workload, file.parent)


def missing_for_bench(bench: Bench, new_folder: Path | None = None) -> tuple[Missing, ...]:
    """Everything that this machine lacks, each with its fix; empty: it can begin.

    ``new_folder``: of the label, where one is asked for.
    """
    experiment = bench.experiment
    found = [*_not_to_be_made(experiment), *_other_versions(bench)]
    for instances in instances_of_all(bench):
        found += bench.engine.missing(instances, bench.machine)
    plans = Plans(experiment, bench.file, new_folder)
    host = Host.of(bench.environment)
    return tuple(dict.fromkeys(missing_for(plans, host, found)))


def _not_to_be_made(experiment: Experiment) -> Iterator[Missing]:
    for name in missing_for_tiny(experiment):
        what = f"the module {name}, by which the model {experiment.model.id} is made"
        yield Missing(what, install_command(EXTRA))


def _other_versions(bench: Bench) -> Iterator[Missing]:
    """Of what would be started, and of what runs already as far as it says."""
    wanted, groups = bench.experiment.engine, bench.experiment.groups
    if wanted.version is None:
        return
    there = {url: bench.engine.version_of(url) for group in groups for url in group.urls}
    if any(not group.urls and not group.command for group in groups):
        there["this machine"] = bench.engine.version()
    for where, have in there.items():
        if have is not None and wanted.version not in have.split():
            yield Missing(
                f"{wanted.name} {wanted.version}: {where} has {have}",
                "install that version, or name the one that is there as engine.version",
            )


def instances_of_all(bench: Bench) -> list[tuple[Instance, ...]]:
    """The replicas of each group that has no command of its own."""
    experiment, folder = bench.experiment, bench.folder
    groups = [group for group in experiment.groups if not group.command]
    return [instances_of(experiment, group, bench.model, folder) for group in groups]


class Foreteller(Protocol):
    """Who says of groups what they will measure, before they run."""

    def after_single(self, single: Collected) -> Path | None:
        """The group of one replica was measured; costs that the others' routers are told."""

    def before(self, run: GroupRun, probe: Callable[[], Probed]) -> None:
        """The engines of this group run, and nothing else does; ``probe`` sends a few requests."""


def run(bench: Bench, shown: Shown, foreteller: Foreteller | None = None) -> Outcome:
    """Every repeat in its order. Whatever ends it, what was measured is written first."""
    bench.logs.mkdir(parents=True, exist_ok=True)
    single = bench.experiment.single if foreteller is not None else None
    last_of_single = None if single is None else Turn(single, bench.experiment.repeats)
    if foreteller is not None and single is None:
        shown.say("nothing is predicted: no group has one replica, to fit costs to")
    going = _Going(bench, backend_of(bench), shown, foreteller)
    is_interrupted = True
    try:
        for position, turn in enumerate(bench.experiment.turns(single), start=1):
            going.turn(turn, position)
            if turn == last_of_single:
                going.learn()
        is_interrupted = False
    except (_InterruptedError, KeyboardInterrupt):
        pass
    finally:
        going.end()
    names = [run.name for run in bench.experiment.runs() if run.name in going.files]
    return Outcome(tuple(map(going.files.__getitem__, names)), going.failures(), is_interrupted)


class _InterruptedError(Exception):
    """The load was told to end."""


class _Going:
    """An experiment on its way. Engines stay for repeats of one group that follow one another."""

    def __init__(
        self, bench: Bench, backend: Backend, shown: Shown, foreteller: Foreteller | None
    ) -> None:
        self.bench = bench
        self._foreteller = foreteller
        self._foretold: set[str] = set()
        self.shown = shown
        self.files: dict[str, Path] = {}
        self._backend = backend
        self._found: dict[str, Collected] = {}
        self._engines = ExitStack()
        self._serving: Serving | None = None
        self._ports: dict[str, list[Ports]] = {}  # by group
        self._costs: Path | None = None
        self._unwritten: dict[str, PointsmanError] = {}  # by group

    def turn(self, turn: Turn, position: int) -> None:
        """One repeat, unless its group has failed. Raises _InterruptedError."""
        name = turn.run.name
        collected = self._found.setdefault(name, Collected(turn.run))
        if collected.failure is not None or name in self.files:
            return
        try:
            if turn.run.group.command:
                self._run_command(turn.run)
            else:
                self._measure(turn, position, collected)
        except GroupError as failed:
            self._stop_engines()
            collected.failure = self._failure(failed.stage, str(failed))
            self.shown.say(f"{name}: failed at {failed.stage}: {failed}")
        if collected.failure is not None or turn.repeat == self.bench.experiment.repeats:
            self._write(name)

    def _measure(self, turn: Turn, position: int, collected: Collected) -> None:
        group = self._engines_of(turn.run)
        self._foretell(group)
        collected.commands = group.commands
        collected.version = self.bench.engine.version_of(group.replicas[0].url)
        name = f"{turn.run.name} {turn.repeat} of {self.bench.experiment.repeats}"
        watch = Watch(lambda progress: self.shown.progress(name, progress))
        repeated = measured(self.bench, group, turn, position, Aside(watch, self._costs))
        collected.repeats.append(repeated)
        if not repeated.measured.is_complete:
            collected.failure = self._failure(INTERRUPTED, "it was told to end during the load")
            raise _InterruptedError

    def _run_command(self, run: GroupRun) -> None:
        self._stop_engines()
        self.files[run.name] = run_command(run, self.bench.folder, self.bench.logs)

    def _engines_of(self, run: GroupRun) -> Serving:
        if self._serving is None or self._serving.run != run:
            self._stop_engines()
            self.shown.say(f"{run.name}: starting {_replicas(run.group.engines)}")
            if run.name not in self._ports:
                with stage("start"):
                    self._ports[run.name] = ports_for(run.group.engines)
            group = serving(self.bench, run, self._ports[run.name])
            self._serving = self._engines.enter_context(group)
        return self._serving

    def _stop_engines(self) -> None:
        self._serving = None
        self._engines.close()

    def learn(self) -> None:
        """The group of one replica is measured: what others' routers are told that work costs."""
        assert self.bench.experiment.single is not None
        assert self._foreteller is not None
        single = self._found[self.bench.experiment.single.name]
        self._stop_engines()
        if single.failure is not None:
            self.shown.say(f"nothing is predicted: {single.run.name} failed")
            return
        self._costs = self._foreteller.after_single(single)

    def _foretell(self, group: Serving) -> None:
        """What can be said of a group before it runs, once."""
        if self._foreteller is None or group.run.name in self._foretold:
            return
        self._foretold.add(group.run.name)
        if group.run != self.bench.experiment.single:
            self._foreteller.before(group.run, lambda: probed(self.bench, group))

    def end(self) -> None:
        """Whatever happened: what was measured is written, and engines stop. Raises what kept a
        group from being written, when all others are."""
        try:
            self._write_all()
        finally:
            self._stop_engines()
        for error in self._unwritten.values():
            raise error

    def _write_all(self) -> None:
        for name, collected in self._found.items():
            if name in self.files:
                continue
            if collected.failure is None:
                collected.failure = self._failure(INTERRUPTED, "not all repeats were measured")
            if collected.repeats or collected.failure.stage != INTERRUPTED:
                self._write(name)

    def _write(self, name: str) -> None:
        if name in self.files or name in self._unwritten:
            return
        try:
            self._write_group(name)
        except PointsmanError as error:
            self._unwritten[name] = error
            self.shown.say(f"{name}: was measured and cannot be written: {error}")

    def _write_group(self, name: str) -> None:
        path = self.bench.folder / f"{name}.json"
        if not path.exists():  # else it is what the group's own command left, and stays
            path = write_group(self.bench, self._backend, self._found[name])
        self.files[name] = path

    def failures(self) -> dict[str, Failure]:
        """By group."""
        found = self._found.items()
        return {name: each.failure for name, each in found if each.failure is not None}

    def _failure(self, stage: str, reason: str) -> Failure:
        bench = self.bench
        file, output = (shlex.quote(str(path)) for path in (bench.file, bench.folder.parent))
        again = f"pointsman bench {file} --output {output} --label ANOTHER"
        where = f"look at the logs in {bench.logs}, then " if stage != INTERRUPTED else ""
        return Failure(stage=stage, reason=reason, retry=where + again)


def _replicas(count: int) -> str:
    return "one replica" if count == 1 else f"{count} replicas"
