"""One repeat of one group: engines that run, caches emptied, the router before them, the load.

    serving(bench, run)      engines, started once for repeats that follow one another
        measured(...)        caches reset -> router -> client -> what was seen

The router starts anew for each repeat: what it knows of the replicas' caches is emptied with them.
Where a cache could not be emptied, each repeat has prompts of its own, and says so.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path

import uvloop

from pointsman.bench.client.arrivals import Loop
from pointsman.bench.client.clock import LoadClock
from pointsman.bench.client.load import Load, Warmup
from pointsman.bench.client.measure import Measured, measure
from pointsman.bench.client.progress import Watch
from pointsman.bench.client.sender import Sender
from pointsman.bench.client.target import Target
from pointsman.bench.client.tokenizer import Lengths, lengths_of
from pointsman.bench.engines.attached import engine_at
from pointsman.bench.engines.external import KNOWN
from pointsman.bench.engines.machine import Machine
from pointsman.bench.engines.processes import shown
from pointsman.bench.engines.protocol import CacheState, Engine, Model, Ports
from pointsman.bench.engines.running import Running, started
from pointsman.bench.experiment import Experiment, GroupRun, Turn, policy_from
from pointsman.bench.memory import peak_memory_mb
from pointsman.bench.router import Asked, routed
from pointsman.bench.shapes import handoff_of, instances_of, placed
from pointsman.bench.stages.pages import Pages, pages_of
from pointsman.bench.stages.served import Served
from pointsman.core.errors import PointsmanError
from pointsman.evidence.envelope import CacheState as CacheWord
from pointsman.fleet.objectives import with_objectives
from pointsman.policies.catalogue import policy_named
from pointsman.workload.workload import Workload


@dataclass(frozen=True, slots=True, eq=False)
class Bench:
    """What all groups of one experiment share; ``folder`` is the label's."""

    experiment: Experiment
    file: Path
    folder: Path
    engine: Engine
    model: Model
    workload: Workload
    loop: Loop
    machine: Machine
    environment: dict[str, str]

    @property
    def logs(self) -> Path:
        """Where programs write."""
        return self.folder / "logs"

    def handoffs(self, run: GroupRun) -> Path:
        """Where a group's caches are handed over, if by files."""
        return self.folder / "handoff" / run.name


class GroupError(PointsmanError):
    """A group ended at ``stage``; the message is the reason."""

    def __init__(self, stage: str, reason: str) -> None:
        super().__init__(reason)
        self.stage = stage


@contextmanager
def stage(name: str) -> Iterator[None]:
    """What goes wrong in this block is a failure of the group, at that stage."""
    try:
        yield
    except GroupError:
        raise
    except (PointsmanError, OSError) as error:
        raise GroupError(name, str(error)) from error


@dataclass(frozen=True, slots=True, eq=False)
class Serving:
    """A group whose engines run. ``lengths`` are asked for once."""

    run: GroupRun
    replicas: Sequence[Running]
    handoff: str | None
    lengths: list[Lengths] = field(default_factory=list)

    @property
    def commands(self) -> tuple[str, ...]:
        """As shells take them; none of those that ran already."""
        launches = (each.launch for each in self.replicas if each.is_ours)
        return tuple(shown(launch.command, dict(launch.environment)) for launch in launches)


@dataclass(frozen=True, slots=True, eq=False)
class Repeated:
    """One repeat as it was seen. ``position``: among all repeats of the experiment, from 1."""

    number: int
    position: int
    cache: CacheWord
    measured: Measured
    served: Served
    before: Pages  # the engines' metrics
    after: Pages
    peak_memory_mb: float | None
    router_command: str | None = None
    decision_log: Path | None = None


@contextmanager
def serving(bench: Bench, run: GroupRun, ports: Sequence[Ports]) -> Iterator[Serving]:
    """Yields when the engines take requests; all are stopped in the end. Raises GroupError.

    ``ports``: the same whenever the group is started, so that its replicas have one name each.
    """
    experiment, folder = bench.experiment, bench.handoffs(run)
    with ExitStack() as engines:
        engines.callback(shutil.rmtree, folder, ignore_errors=True)
        with stage("start"):
            handoff = handoff_of(run.group, bench.engine, folder)
            wanted = instances_of(experiment, run.group, bench.model, folder)
            instances = placed(wanted, bench.machine, experiment.hardware.device)
            replicas = engines.enter_context(
                started(bench.engine, instances, bench.logs / run.name, ports)
            )
        yield Serving(run, replicas, handoff.protocol if handoff else None)


@dataclass(frozen=True, slots=True)
class Aside:
    """Beside a repeat: who watches it, and what the router is told that work costs."""

    watch: Watch
    costs: Path | None = None


def measured(bench: Bench, group: Serving, turn: Turn, position: int, aside: Aside) -> Repeated:
    """Send the workload through the group once. Raises GroupError.

    ``position``: among all repeats of the experiment, from 1.
    """
    dialect = dialect_of(bench.engine, group.replicas[0].url)
    model = bench.model.name
    lengths = lengths_of_group(bench, group)
    with stage("reset"):
        caches = [bench.engine.reset_cache(each) for each in group.replicas]
        _empty(bench.handoffs(group.run))
    asked = asked_for(bench, turn.run, f"{turn.run.name}-{turn.repeat}", group.handoff, aside.costs)
    log = bench.logs / group.run.name / "router.log"
    with stage("router"), routed(asked, group.replicas, log) if asked else nullcontext() as router:
        url = router.url if router else group.replicas[0].url
        load = load_of(bench, turn, caches, position)
        served = served_by(bench, group.replicas)
        before = pages_of(served.urls)
        with stage("load"):
            seen = measure(Target(url, model, dialect), load, aside.watch, lengths)
        after = pages_of(served.urls)
        memory = peak_memory_mb(group.replicas, bench.experiment.hardware.device, bench.environment)
    return Repeated(
        number=turn.repeat,
        position=position,
        cache=cache_word(caches),
        measured=seen,
        served=served,
        before=before,
        after=after,
        peak_memory_mb=memory,
        router_command=router.command if router else None,
        decision_log=asked.decision_log if asked else None,
    )


def served_by(bench: Bench, replicas: Sequence[Running]) -> Served:
    """The engines as stages are told of; what runs already is known by its metrics' names."""
    served = Served.by(replicas, bench.experiment.workload.kv_bytes_per_token)
    known = engine_at(replicas[0].url, KNOWN) if served.signals is None else None
    return served if known is None else replace(served, signals=known.signals)


def asked_for(
    bench: Bench, run: GroupRun, name: str, handoff: str | None, costs: Path | None = None
) -> Asked | None:
    """The router in front of a group, ``name`` is of its log; None: there is nothing to choose."""
    if run.policy is None:
        return None
    policy = policy_from(run.policy, bench.file.parent)
    return Asked(
        policy=policy,
        decision_log=bench.folder / "rows" / f"{name}.decisions.jsonl",
        handoff=handoff,
        costs=costs,
        goodput=_objectives_for(policy, bench.experiment),
        flags=bench.experiment.router.flags,
    )


def _objectives_for(policy: str, experiment: Experiment) -> tuple[str, ...]:
    """As ``--goodput`` takes them; none where the policy goes by none of them."""
    if experiment.slo is None:
        return ()
    objectives = experiment.slo.objectives()
    plain = policy_named(policy)
    (told,) = with_objectives([policy], [plain], objectives)
    limits = {name: getattr(objectives, f"{name}_ms") for name in ("ttft", "tpot", "e2el")}
    given = tuple(f"{name}:{limit:g}" for name, limit in limits.items() if limit is not None)
    return () if told == plain else given


def load_of(bench: Bench, turn: Turn, caches: Sequence[CacheState], position: int) -> Load:
    """The same prompts each time where caches are empty; else other ones each time, and in each
    label, for what an earlier run sent may be cached too."""
    experiment = bench.experiment
    seed = experiment.workload.seed
    if not all(each.is_empty for each in caches):
        label = blake2b(str(bench.folder.absolute()).encode(), digest_size=4)
        seed += int.from_bytes(label.digest(), "big") + position
    return Load(
        bench.workload,
        bench.loop,
        Warmup(experiment.warmup_requests),
        name=f"{turn.run.name}-{turn.repeat}",
        seed=seed,
    )


def cache_word(caches: Sequence[CacheState]) -> CacheWord:
    """As evidence says it."""
    return "reset" if all(each.is_empty for each in caches) else "carried"


def dialect_of(engine: Engine, url: str) -> str:
    """How requests are worded; of servers that ran already it is seen from their metrics."""
    if engine.name != "external":
        return engine.name
    known = engine_at(url, KNOWN)
    return "openai" if known is None else known.name


def lengths_of_group(bench: Bench, group: Serving) -> Lengths:
    """How its model's prompts get their lengths; it is asked once."""
    url = group.replicas[0].url
    if not group.lengths:
        with stage("ready"):
            target = Target(url, bench.model.name, dialect_of(bench.engine, url))
            group.lengths.append(_lengths(target))
    return group.lengths[0]


def _lengths(target: Target) -> Lengths:
    """Asked before anything is measured, of one engine, whose cache is emptied after it."""

    async def asked() -> Lengths:
        sender = Sender(target, LoadClock())
        await sender.open()
        try:
            return await lengths_of(sender, target)
        finally:
            sender.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(asked())


def _empty(folder: Path) -> None:
    """Files of caches that were handed over would be found again."""
    if folder.is_dir():
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() and not path.is_symlink() else path.unlink()
