"""The file of an experiment, as it is written: ``docs/experiments.md`` lists its keys.

Every value is checked when the file is read; what depends on the machine is `preflight.py`'s.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from pointsman.bench.decoding import decoded
from pointsman.core.errors import InputError, unknown_name
from pointsman.metrics.goodput import Objectives
from pointsman.policies.catalogue import policy_named
from pointsman.workload.distributions import distribution_of_text

ENGINES = ("llamacpp", "vllm", "sglang", "external")
MODES = ("replica", "pd_disaggregated")  # the lesson's words
REPLICA, SPLIT = MODES
ORDERS = ("given", "abba")
DEVICES = ("gpu", "cpu")
LOADS = OPEN, CLOSED = ("open", "closed")

AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]
Fraction = Annotated[float, msgspec.Meta(gt=0, le=1)]
Text = Annotated[str, msgspec.Meta(min_length=1)]
FileName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,79}$")]
MOST_POLICIES = 26


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """What is served; what is left out is as the engine has it."""

    id: Text  # of a hub, a folder, or a file of weights
    served_name: Text | None = None  # as requests call it
    revision: Text | None = None
    tokenizer: Text | None = None
    dtype: Text | None = None


class EngineWanted(msgspec.Struct, frozen=True, kw_only=True):
    """What serves it. ``version``: the run is refused with another one.

    ``command``: the engine's program (of llama.cpp and SGLang the Python that has it); None: as it
    installs itself. ``max_running`` and ``context_tokens`` are of each replica, the engine's own
    where they are None; ``cache_gib``: of KV, of vLLM on CPUs.
    """

    name: str
    version: Text | None = None
    command: Text | None = None
    flags: tuple[str, ...] = ()
    max_running: AtLeastOne | None = None
    context_tokens: AtLeastOne | None = None
    cache_gib: AtLeastOne = 1

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            raise unknown_name("engine", "name", self.name, ENGINES)


class HardwareWanted(msgspec.Struct, frozen=True, kw_only=True):
    """What it is to run on. ``world_size``: GPUs that there have to be; None: as many as the
    largest group takes. ``cores_per_rank``: of CPUs, which no other rank of the group gets; None:
    ranks run on any."""

    device: str
    cores_per_rank: AtLeastOne | None = None
    world_size: AtLeastOne | None = None
    memory_mb: Positive | None = None  # of the host, at least

    def __post_init__(self) -> None:
        if self.device not in DEVICES:
            raise unknown_name("hardware", "device", self.device, DEVICES)


class Generated(msgspec.Struct, frozen=True, kw_only=True):
    """Requests to be drawn; lengths in the words of ``pointsman trace generate``."""

    requests: AtLeastOne
    prompt_tokens: Text
    output_tokens: Text
    rate_rps: Positive | None = None
    turns: Text | None = None
    think_time_ms: Text | None = None
    system_prompt_tokens: Text | None = None
    system_prompts: AtLeastOne = 1

    def __post_init__(self) -> None:
        for name in ("prompt_tokens", "output_tokens", "turns", "think_time_ms"):
            if getattr(self, name) is not None:
                distribution_of_text(getattr(self, name), name)
        if self.system_prompt_tokens is not None:
            distribution_of_text(self.system_prompt_tokens, "system_prompt_tokens")
        if (self.turns is None) != (self.think_time_ms is None):
            raise InputError("turns and think_time_ms go together; expected both or neither")


class WorkloadWanted(msgspec.Struct, frozen=True, kw_only=True):
    """The same requests for every group: of a trace or drawn.

    ``load``: ``open`` sends at the trace's instants, ``closed`` keeps ``concurrency`` in flight,
    each user pausing ``think_time_ms`` after an answer.
    """

    id: Text
    trace: Text | None = None  # seen from the experiment's folder
    limit: AtLeastOne | None = None
    generate: Generated | None = None
    load: str = OPEN
    concurrency: AtLeastOne | None = None
    think_time_ms: NotNegative = 0.0
    max_tokens: AtLeastOne | None = None
    kv_bytes_per_token: Positive | None = None
    seed: Count = 0

    def __post_init__(self) -> None:
        if self.load not in LOADS:
            raise unknown_name("workload", "load", self.load, LOADS)
        if (self.trace is None) == (self.generate is None):
            raise InputError("expected trace or a table generate, one of the two")
        if self.limit is not None and self.trace is None:
            raise InputError("limit goes with trace; expected generate.requests alone")
        if self.load == CLOSED and self.concurrency is None:
            raise InputError("load is closed; expected concurrency, how many are in flight")
        if self.load == OPEN and self.think_time_ms:
            raise InputError('load is open; expected think_time_ms with load = "closed" alone')
        drawn = self.generate
        if drawn is not None and self.load == OPEN and drawn.rate_rps is None:
            raise InputError('load is open; expected generate.rate_rps, or load = "closed"')


class RouterWanted(msgspec.Struct, frozen=True, kw_only=True):
    """Our router: further flags of ``pointsman serve``, after ours, so that they win."""

    flags: tuple[str, ...] = ()


class Slo(msgspec.Struct, frozen=True, kw_only=True):
    """What a request is to keep, and how many of all that are offered must."""

    ttft_ms: Positive | None = None
    tpot_ms: Positive | None = None
    e2el_ms: Positive | None = None
    attainment: Fraction = 0.95

    def objectives(self) -> Objectives:
        """As goodput is counted."""
        return Objectives(self.ttft_ms, self.tpot_ms, self.e2el_ms)


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """One shape. ``command``: a program of yours that writes the group's file, in place of ours.

    ``replicas`` of mode ``pd_disaggregated`` are those that prefill and those that decode
    together, and may be left out. ``urls``: of an engine that runs already, one a replica.
    """

    name: FileName
    mode: str = REPLICA
    replicas: AtLeastOne | None = None
    prefills: AtLeastOne | None = None
    decodes: AtLeastOne | None = None
    tp: AtLeastOne = 1
    pp: AtLeastOne = 1
    policies: tuple[str, ...] = ()
    handoff: Text | None = None  # as ``pointsman serve --handoff`` names it
    urls: tuple[str, ...] = ()
    command: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise unknown_name(self.name, "mode", self.mode, MODES)
        (_check_split if self.mode == SPLIT else _check_replicas)(self)
        for text in self.policies:
            if ".py:" not in text:  # a file of a user's is loaded, and so run, by preflight
                policy_named(text)
        if self.engines > 1 and not self.policies and not self.command:
            raise InputError("there is a choice to make; expected policies, at least one")
        if self.engines == 1 and self.policies:
            raise InputError("policies are of several replicas; expected none for one")
        if len(self.policies) > MOST_POLICIES:
            raise InputError(
                f"policies are {len(self.policies)}; expected at most {MOST_POLICIES}, for each"
                " makes a group with a letter"
            )
        if self.urls and len(self.urls) != self.engines:
            raise InputError(f"urls are {len(self.urls)}; expected {self.engines}, one a replica")

    @property
    def engines(self) -> int:
        """Replicas in all."""
        return (
            (self.prefills or 0) + (self.decodes or 0) if self.mode == SPLIT else self.replicas or 1
        )

    @property
    def gpus(self) -> int:
        """GPUs of all of them, where they are on any; of those that run already none of ours."""
        return 0 if self.urls else self.engines * self.tp * self.pp


def _check_replicas(group: Group) -> None:
    if group.prefills is not None or group.decodes is not None or group.handoff is not None:
        raise InputError(
            f"prefills, decodes and handoff are of mode {SPLIT}; expected replicas alone"
        )
    if group.replicas is None:
        raise InputError(f"replicas is missing; expected how many, for the mode is {REPLICA}")


def _check_split(group: Group) -> None:
    if group.prefills is None or group.decodes is None:
        raise InputError(f"the mode is {SPLIT}; expected prefills and decodes")
    if group.replicas not in (None, group.engines):
        raise InputError(
            f"replicas is {group.replicas}; expected {group.engines}, prefills and decodes"
            " together, or nothing"
        )


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """One file. ``order``: ``given``, or ``abba``: every other repeat backwards."""

    name: FileName
    model: Model
    engine: EngineWanted
    hardware: HardwareWanted
    workload: WorkloadWanted
    groups: Annotated[tuple[Group, ...], msgspec.Meta(min_length=1)]
    slo: Slo | None = None
    router: RouterWanted = RouterWanted()
    warmup_requests: Count = 0
    repeats: AtLeastOne = 3
    order: str = "given"

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise unknown_name("experiment", "order", self.order, ORDERS)
        names = [run.name for run in self.runs()]
        for name in names:
            if name == "decision" or name.startswith("decision-"):
                raise InputError(f"the group {name} has the name of a file of decisions")
            if names.count(name) > 1:
                raise InputError(f"the group {name} is there twice; expected names that differ")
        if self.engine.name == "external":
            for group in self.groups:
                if not group.urls and not group.command:
                    raise InputError(
                        f"engine external starts nothing; expected urls for the group {group.name}"
                    )

    @property
    def world_size(self) -> int:
        """GPUs that the largest group takes."""
        largest = max((group.gpus for group in self.groups if not group.command), default=0)
        return max(largest, self.hardware.world_size or 0)

    def cores_of(self, group: Group) -> int:
        """Cores that are to be a group's alone; 0: its ranks run on any."""
        if group.urls or group.command:
            return 0
        return group.gpus * (self.hardware.cores_per_rank or 0)

    def runs(self) -> tuple[GroupRun, ...]:
        """What is measured: each group with each of its policies."""
        return tuple(run for group in self.groups for run in _runs_of(group))

    @property
    def single(self) -> GroupRun | None:
        """The first group of one replica, which the others are held against."""
        singles = (run for run in self.runs() if run.group.mode == REPLICA)
        return next((run for run in singles if run.group.engines == 1), None)

    def turns(self, first: GroupRun | None = None) -> tuple[Turn, ...]:
        """Every repeat of every run, in the order in which they take place.

        ``given``: a run's repeats one after the other, so that its engines start once. ``abba``:
        all runs forwards, then all backwards, so that what drifts favours none. All repeats of
        ``first`` come before anything else.
        """
        repeats = range(1, self.repeats + 1)
        runs = [run for run in self.runs() if run != first]
        before = [] if first is None else [Turn(first, k) for k in repeats]
        if self.order == "given":
            rest = [Turn(run, k) for run in runs for k in repeats]
        else:
            rest = [Turn(run, k) for k in repeats for run in (runs if k % 2 else runs[::-1])]
        return (*before, *rest)


class GroupRun(msgspec.Struct, frozen=True):
    """A group behind one policy, under the name of its file."""

    name: str
    group: Group
    policy: str | None


class Turn(msgspec.Struct, frozen=True):
    """One repeat, from 1, of one run."""

    run: GroupRun
    repeat: int


def _runs_of(group: Group) -> list[GroupRun]:
    """Several policies make ``g1a``, ``g1b``: the first part of the name is lettered."""
    if len(group.policies) < 2:
        return [GroupRun(group.name, group, group.policies[0] if group.policies else None)]
    head, underscore, rest = group.name.partition("_")
    return [
        GroupRun(f"{head}{chr(ord('a') + number)}{underscore}{rest}", group, policy)
        for number, policy in enumerate(group.policies)
    ]


def read_experiment(path: Path) -> Experiment:
    """The experiment of a TOML file.

    Raises InputError for a key that is missing, unknown or wrong, MachineError where the file
    cannot be read.
    """
    return decoded(path, Experiment)


def policy_from(text: str, folder: Path) -> str:
    """A policy as the router is told it: a file of a user's is sought from ``folder``."""
    file, colon, rest = text.partition(".py:")
    return f"{folder / file}.py:{rest}" if colon else text
