"""All groups of an experiment, one after the other: what is missing, then engines, load, files.

    plan_of(file)     the experiment, its requests, where results go; nothing is started
    missing(plan)     what this machine lacks
    run(plan)         every repeat of every group; a file a group

A group that fails leaves a file that says so, and the others go on. Interrupted, what was measured
is written, and what was not begun is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pointsman.bench.client.progress import Progress, Watch
from pointsman.bench.engines.machine import Machine
from pointsman.bench.engines.protocol import Instance, Ports
from pointsman.bench.engines.running import ports_for
from pointsman.bench.experiment import Experiment, GroupRun, Turn
from pointsman.bench.group_file import Backend, Collected, backend_of, write_group
from pointsman.bench.groups import Aside, Bench, GroupError, Serving, measured, serving
from pointsman.bench.missing import Missing
from pointsman.bench.own_command import run_command
from pointsman.bench.preflight import Host, Plans, missing_for
from pointsman.bench.requests import loop_of, requests_of
from pointsman.bench.shapes import engine_of, instances_of, missing_for_tiny, model_of
from pointsman.core.errors import InputError
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
        yield Missing(what, "pip install 'pointsman[llamacpp]'")


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


# Told when the group of one replica has been measured, and before any other one runs; what it gives
# back are costs that the routers of the others are told.
AfterSingle = Callable[[Collected], Path | None]


def run(bench: Bench, shown: Shown, after_single: AfterSingle | None = None) -> Outcome:
    """Every repeat in its order. Whatever ends it, what was measured is written first."""
    bench.logs.mkdir(parents=True, exist_ok=True)
    single = bench.experiment.single if after_single is not None else None
    last_of_single = None if single is None else Turn(single, bench.experiment.repeats)
    going = _Going(bench, backend_of(bench), shown)
    is_interrupted = True
    try:
        for position, turn in enumerate(bench.experiment.turns(single), start=1):
            going.turn(turn, position)
            if after_single is not None and turn == last_of_single:
                going.learn(after_single)
        is_interrupted = False
    except _InterruptedError:
        pass
    finally:
        going.end()
    names = [run.name for run in bench.experiment.runs() if run.name in going.files]
    return Outcome(tuple(map(going.files.__getitem__, names)), going.failures(), is_interrupted)


class _InterruptedError(Exception):
    """The load was told to end."""


class _Going:
    """An experiment on its way. Engines stay for repeats of one group that follow one another."""

    def __init__(self, bench: Bench, backend: Backend, shown: Shown) -> None:
        self.bench = bench
        self.shown = shown
        self.files: dict[str, Path] = {}
        self._backend = backend
        self._found: dict[str, Collected] = {}
        self._engines = ExitStack()
        self._serving: Serving | None = None
        self._ports: dict[str, list[Ports]] = {}  # by group
        self._costs: Path | None = None

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
                self._ports[run.name] = ports_for(run.group.engines)
            group = serving(self.bench, run, self._ports[run.name])
            self._serving = self._engines.enter_context(group)
        return self._serving

    def _stop_engines(self) -> None:
        self._serving = None
        self._engines.close()

    def learn(self, after_single: AfterSingle) -> None:
        """What can be said of the other groups before they run."""
        assert self.bench.experiment.single is not None
        single = self._found[self.bench.experiment.single.name]
        self._stop_engines()
        if single.failure is None:
            self._costs = after_single(single)

    def end(self) -> None:
        """Whatever happened: engines stop, and what was measured is written."""
        self._stop_engines()
        for name, collected in self._found.items():
            if name in self.files:
                continue
            if collected.failure is None:
                collected.failure = self._failure(INTERRUPTED, "not all repeats were measured")
            if collected.repeats or collected.failure.stage != INTERRUPTED:
                self._write(name)

    def _write(self, name: str) -> None:
        if name in self.files:
            return
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
        again = f"pointsman bench {bench.file} --output {bench.folder.parent} --label ANOTHER"
        where = f"look at the logs in {bench.logs}, then " if stage != INTERRUPTED else ""
        return Failure(stage=stage, reason=reason, retry=where + again)


def _replicas(count: int) -> str:
    return "one replica" if count == 1 else f"{count} replicas"
