"""The ranks: torch's process group, the products, and the stopwatch around them.

torch is imported here when a run starts, and nowhere else, for it is an extra.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from pointsman.bench.mechanism.asked import WHERE, MechanismAsked
from pointsman.bench.mechanism.result import ON_CPU, ON_GPUS, Profile
from pointsman.bench.mechanism.routing import Queues
from pointsman.core.errors import InputError, MachineError

SEED = 0
INSTALL = "pip install 'pointsman[torch]'"


@dataclass(frozen=True, slots=True)
class Place:
    """Where torchrun put this process."""

    rank: int
    local_rank: int
    ranks: int
    store_host: str
    store_port: int


def place_of(environment: Mapping[str, str]) -> Place:
    """What torchrun says in the environment. Raises InputError where it did not start us."""
    try:
        place = Place(
            rank=int(environment["RANK"]),
            local_rank=int(environment["LOCAL_RANK"]),
            ranks=int(environment["WORLD_SIZE"]),
            store_host=environment["MASTER_ADDR"],
            store_port=int(environment["MASTER_PORT"]),
        )
    except (KeyError, ValueError):
        raise InputError(
            f"{WHERE}: torchrun did not start this process; expected"
            " torchrun --standalone --nproc_per_node 2 -m pointsman.bench.mechanism ..., or"
            " pointsman mechanism, which does that"
        ) from None
    if place.ranks < 2:
        raise InputError(
            f"{WHERE}: there is {place.ranks} rank; expected at least 2, torchrun"
            " --nproc_per_node 2"
        )
    return place


def torch_fault() -> str | None:
    """Why torch cannot be imported; None where it can."""
    try:
        importlib.import_module("torch.distributed")
    except (ImportError, OSError) as error:
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    return None


def imported_torch() -> Any:
    """torch; MachineError, saying how to install it, where there is none."""
    fault = torch_fault()
    if fault is not None:
        raise MachineError(f"{WHERE}: torch is not there ({fault}); expected it as by {INSTALL}")
    return importlib.import_module("torch")


def profile_of(torch: Any, ranks: int) -> Profile:
    """On GPUs where there is one for each rank, on the CPU where there is none at all.

    Raises MachineError for GPUs that are fewer than ranks: two ranks on one GPU measure how they
    share it.
    """
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if 0 < gpus < ranks:
        raise MachineError(
            f"{WHERE}: {gpus} GPU for {ranks} ranks; expected one for each, or none:"
            " CUDA_VISIBLE_DEVICES= hides them and the run is on the CPU"
        )
    return ON_GPUS if gpus else ON_CPU


class Work(Protocol):
    """What a unit of cost is made of."""

    def unit(self) -> None:
        """Begin one unit."""

    def wait(self) -> None:
        """Return once every unit begun is done."""


class SquareProducts:
    """A unit is one product of two square matrices; nothing is allocated while it is made."""

    def __init__(self, torch: Any, device: Any, asked: MechanismAsked) -> None:
        dtype = getattr(torch, asked.dtype)
        torch.manual_seed(SEED)
        shape = (asked.compute_dim, asked.compute_dim)
        self._torch = torch
        self._device = device
        self._left = torch.randn(shape, device=device, dtype=dtype)
        self._right = torch.randn(shape, device=device, dtype=dtype)
        self._product = torch.empty_like(self._left)

    def unit(self) -> None:
        """Multiply."""
        self._torch.mm(self._left, self._right, out=self._product)

    def wait(self) -> None:
        """Wait for the GPU; the CPU is done when it returns."""
        if self._device.type == "cuda":
            self._torch.cuda.synchronize(self._device)


@dataclass(frozen=True, slots=True)
class Round:
    """One strategy once: how long a rank took for its queue, and the units it made."""

    strategy: str
    elapsed_ms: float
    units: int


@dataclass(frozen=True, slots=True)
class Ranks:
    """The process group as one rank has it."""

    torch: Any
    place: Place
    device: Any
    group: str  # nccl or gloo

    def line_up(self) -> None:
        """Return when every rank is here, and nothing is left to do on the device."""
        token = self.torch.ones(1, device=self.device)
        self.torch.distributed.all_reduce(token)
        token.item()

    def gathered(self, own: Any) -> list[Any]:
        """What each rank gives, by rank, on every rank."""
        everyone: list[Any] = [None] * self.place.ranks
        self.torch.distributed.all_gather_object(everyone, own)
        return everyone


def joined_ranks(torch: Any, place: Place, profile: Profile, timeout_s: float) -> Ranks:
    """Join the process group; no wait in it is longer than the timeout."""
    if profile == ON_GPUS:
        device, group = torch.device("cuda", place.local_rank), "nccl"
        torch.cuda.set_device(device)
    else:
        device, group = torch.device("cpu"), "gloo"
    torch.distributed.init_process_group(
        group,
        init_method="env://",
        rank=place.rank,
        world_size=place.ranks,
        timeout=timedelta(seconds=timeout_s),
    )
    return Ranks(torch, place, device, group)


def measured(
    ranks: Ranks, work: Work, queues: Mapping[str, Queues], asked: MechanismAsked
) -> list[Round]:
    """The rounds of this rank as they were run: A B, B A, A B... so that drift favours neither."""
    forward = list(queues)
    for strategy in forward * asked.warmup:
        _run_queue(ranks, work, queues[strategy])
    rounds = []
    for repeat in range(asked.repeats):
        for strategy in forward if repeat % 2 == 0 else reversed(forward):
            elapsed_ms, units = _run_queue(ranks, work, queues[strategy])
            rounds.append(Round(strategy, elapsed_ms, units))
    return rounds


def _run_queue(ranks: Ranks, work: Work, queues: Queues) -> tuple[float, int]:
    """Milliseconds of this rank for its own requests, and the units it made."""
    ranks.line_up()
    units = 0
    started = time.perf_counter()
    for cost in queues[ranks.place.rank]:
        for _ in range(cost):
            work.unit()
            units += 1
    work.wait()
    return (time.perf_counter() - started) * 1e3, units
