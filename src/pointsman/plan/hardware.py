"""A model on GPUs of one kind: which shapes hold it, and each as a fleet that can be simulated."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from pointsman.core.errors import InputError, wrong_value
from pointsman.costs.calibrated import CostFile
from pointsman.costs.iteration import IterationCosts
from pointsman.costs.roofline import Instance
from pointsman.fleet.engines import engine_of_costs, engine_of_instance, split_of_instances
from pointsman.plan.shapes import Shape, check_kinds, instances_within, shapes_of
from pointsman.sim.batching import BatchingFleet, Engine

MAX_GPUS = 1024
MAX_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Deployment:
    """A shape that can be simulated; ``communication`` is that part of an iteration's costs."""

    shape: Shape
    fleet: BatchingFleet
    communication: IterationCosts


@dataclass(frozen=True, slots=True)
class Dropped:
    """Instances that cannot hold the model or cannot be cut so, and how many shapes that takes."""

    instance: str
    shapes: int
    reason: str


@dataclass(frozen=True, slots=True)
class Hardware:
    """So many GPUs and what one replica on one of them would be.

    ``calibrated`` costs hold for the instance that was recorded and no other; without them costs
    are the roofline's.
    """

    single: Instance  # of one GPU; other shapes differ from it in tp and pp alone
    gpus: int
    block_size: int = 16
    calibrated: CostFile | None = None

    def __post_init__(self) -> None:
        for name, most in (("gpus", MAX_GPUS), ("block_size", MAX_BLOCK)):
            value = getattr(self, name)
            whole = isinstance(value, int) and not isinstance(value, bool)
            if not whole or not 1 <= value <= most:
                raise wrong_value("plan", name, value, f"an integer in 1..{most}")

    @property
    def name(self) -> str:
        """As in ``llama-3.1-8b on 8 h100-sxm``."""
        return f"{self.single.model.name} on {self.gpus} {self.single.device.name}"

    def instance(self, tp: int, pp: int) -> Instance:
        """One replica. Raises InputError where the model cannot be cut so."""
        return replace(self.single, tp=tp, pp=pp, micro_batches=None)

    def shapes(self, kinds: Collection[str]) -> tuple[list[Shape], list[Dropped]]:
        """The shapes that hold the model, and what was dropped.

        Raises InputError where none does.
        """
        check_kinds(kinds)
        model, device = self.single.model, self.single.device
        pairs = instances_within(self.gpus, device.gpus_per_node, model.layers)
        fitting: list[Shape] = []
        dropped: list[Dropped] = []
        for pair in pairs:
            shapes = [shape for shape in shapes_of([pair], self.gpus) if shape.kind in kinds]
            reason = self._why_not(*pair)
            if reason is None:
                fitting += shapes
            elif shapes:
                dropped.append(Dropped(shapes[0].instance, len(shapes), reason))
        if not fitting:
            raise InputError(f"plan: {self._nothing(dropped, kinds)}")
        return fitting, dropped

    def smallest(self) -> Shape:
        """One replica on the fewest GPUs that hold the model."""
        shapes, _ = self.shapes(("replicas", "tp_pp"))
        return min(shapes, key=lambda shape: (shape.gpus, shape.replicas, shape.pp))

    def deploy(self, shape: Shape, micro_batches: int | None = None) -> Deployment:
        """The shape as a fleet; ``micro_batches`` fill its pipelines, by default all stages.

        Raises InputError where it does not hold the model.
        """
        if shape.gpus > self.gpus:
            wanted = f"a shape of at most {self.gpus} GPUs"
            raise wrong_value("plan", "shape", f"{shape.label}, {shape.gpus} GPUs", wanted)
        reason = self._why_not(shape.tp, shape.pp)
        if reason is not None:
            raise InputError(f"plan: shape {shape.label}: {reason}")
        instance = replace(self.instance(shape.tp, shape.pp), micro_batches=micro_batches)
        split = split_of_instances(instance, shape.prefill) if shape.prefill else None
        fleet = BatchingFleet((self._engine(instance),) * shape.replicas, split)
        return Deployment(shape, fleet, instance.communication_costs())

    def _why_not(self, tp: int, pp: int) -> str | None:
        """Why an instance is no candidate; None where it is one."""
        if self.calibrated is not None:
            recorded = self.calibrated.engine.tensor_parallel
            if (tp, pp) != (recorded, 1):
                return f"costs were calibrated on TP{recorded} and hold for no other instance"
        try:
            self._engine(self.instance(tp, pp))
        except InputError as error:
            return str(error)
        return None

    def _engine(self, instance: Instance) -> Engine:
        longest = instance.model.max_context_tokens
        if self.calibrated is None:
            engine = engine_of_instance(instance, self.block_size)
        elif self.calibrated.engine.kv_blocks is not None:
            engine = engine_of_costs(self.calibrated)
        else:
            blocks = instance.kv_blocks(self.calibrated.engine.block_size)
            engine = engine_of_costs(self.calibrated, blocks)
        return replace(engine, max_model_len=longest)

    def _nothing(self, dropped: list[Dropped], kinds: Collection[str]) -> str:
        if not dropped:
            return f"{self.name} has no shape of the kinds {', '.join(kinds)}; expected more GPUs"
        return f"no shape of {self.name} can be planned: {dropped[-1].reason}"
