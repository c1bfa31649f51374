"""A whole fleet as it was described: its groups, the link between them, what surrounds it."""

from __future__ import annotations

from dataclasses import dataclass, field

from pointsman.core.errors import InputError, wrong_value
from pointsman.costs.roofline import Instance
from pointsman.fleet.engines import split_of_instances
from pointsman.fleet.groups import DECODE, PREFILL, Group, Recorded
from pointsman.sim.batching import MAX_REPLICAS, BatchingFleet, Split
from pointsman.sim.conditions import NOTHING_SPECIAL, Conditions
from pointsman.workload.workload import Workload

# vLLM's own on GPUs (vllm/config/cache.py).
BLOCK_TOKENS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What KV goes over from prefill to decode; None is that of the devices and the model.

    Decimal gigabytes. See ``sim.batching.Split`` for the rest.
    """

    gb_per_s: float | None = None
    base_ms: float = 0.0
    kv_bytes_per_token: float | None = None
    contention: bool = True
    moves_all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetDescription:
    """Replicas are numbered through the groups in order, those that prefill alone first.

    Raises InputError where there is no replica or too many, where some groups have a role and
    others none, and for a link or a change that has nothing to belong to.
    """

    groups: tuple[Group, ...]
    link: Link | None = None
    conditions: Conditions = field(default_factory=lambda: NOTHING_SPECIAL)
    block_size: int | None = None  # None: ``block_size_for`` decides

    def __post_init__(self) -> None:
        if not 1 <= self.replicas <= MAX_REPLICAS:
            raise wrong_value("fleet", "replicas", self.replicas, f"1..{MAX_REPLICAS} in all")
        self._check_roles()
        for change in self.conditions.changes:
            if not 0 <= change.replica < self.replicas:
                wanted = f"a replica in 0..{self.replicas - 1}"
                raise wrong_value("changes", "replica", change.replica, wanted)

    @property
    def replicas(self) -> int:
        """How many there are."""
        return sum(group.count for group in self.groups)

    @property
    def gpus(self) -> int:
        """GPUs of all of them."""
        return sum(group.gpus for group in self.groups)

    @property
    def is_split(self) -> bool:
        """Whether prefill and decode are apart."""
        return any(group.role is not None for group in self.groups)

    @property
    def ordered(self) -> tuple[Group, ...]:
        """The groups as replicas are numbered."""
        return tuple(sorted(self.groups, key=lambda group: group.role == DECODE))

    def block_size_for(self, workload: Workload) -> int:
        """Tokens of a KV block, the same on all replicas.

        As described; else the trace's, where its chains are of blocks larger than 16 tokens: what
        it says of prefixes is no finer, and the run is shorter. Else that of the first recorded
        engine, else 16.
        """
        if self.block_size is not None:
            return self.block_size
        if workload.chain_blocks.size and workload.block_size_tokens > BLOCK_TOKENS:
            return workload.block_size_tokens
        for group in self.groups:
            if isinstance(group.hardware, Recorded):
                return group.hardware.file.engine.block_size
        return BLOCK_TOKENS

    def assembled(self, workload: Workload) -> BatchingFleet:
        """What the simulator runs for this workload.

        Raises InputError where a model does not fit, or the hand-off cannot be priced.
        """
        size = self.block_size_for(workload)
        engines = tuple(
            engine for group in self.ordered for engine in (group.engine(size),) * group.count
        )
        return BatchingFleet(engines, self._split() if self.is_split else None)

    def _check_roles(self) -> None:
        if not self.is_split:
            if self.link is not None:
                raise InputError(
                    "link: there is nothing to link; expected groups with the roles"
                    f" {PREFILL} and {DECODE}"
                )
            return
        for group in self.groups:
            if group.role is None:
                raise InputError(
                    f"fleet: {group.name} has no role and others have one; expected"
                    f" {PREFILL} or {DECODE} for every group, or for none"
                )
        for role in (PREFILL, DECODE):
            if all(group.role != role for group in self.groups):
                raise InputError(f"fleet: nobody has the role {role}; expected a group that does")

    def _split(self) -> Split:
        link = self.link or Link()
        prefills = [group for group in self.ordered if group.role == PREFILL]
        count = sum(group.count for group in prefills)
        first = prefills[0].hardware
        rate, kv_bytes = link.gb_per_s, link.kv_bytes_per_token
        if isinstance(first, Instance) and (rate is None or kv_bytes is None):
            self._check_one_model()
            devices = split_of_instances(first, count)
            rate = self._slowest_link_gb_per_s() if rate is None else rate
            kv_bytes = devices.kv_bytes_per_token if kv_bytes is None else kv_bytes
        if rate is None or kv_bytes is None:
            raise InputError(
                f"link: {prefills[0].name} says neither how fast KV goes over nor how much there is"
                " of a token; expected gb_per_s and kv_bytes_per_token in [link]"
            )
        return Split(
            prefill=count,
            kv_bytes_per_token=kv_bytes,
            bytes_per_ms=rate * 1e6,
            base_ms=link.base_ms,
            contention=link.contention,
            moves_all=link.moves_all,
        )

    def _slowest_link_gb_per_s(self) -> float:
        return min(
            group.hardware.device.link_gb_per_s
            for group in self.groups
            if isinstance(group.hardware, Instance)
        )

    def _check_one_model(self) -> None:
        names = {
            group.hardware.model.name
            for group in self.groups
            if isinstance(group.hardware, Instance)
        }
        if len(names) > 1:
            raise InputError(
                f"fleet: prefill and decode of {', '.join(sorted(names))}; expected one model, for"
                " the one takes over the other's KV cache"
            )
