"""How one instance is spread over GPUs: tensor parallel ranks, pipeline stages, micro-batches."""

from __future__ import annotations

from dataclasses import dataclass

from pointsman.core.errors import wrong_value
from pointsman.costs.devices import Device
from pointsman.costs.models import ModelShape


@dataclass(frozen=True, slots=True)
class Parallel:
    """``tp`` ranks in each of ``pp`` stages; a batch goes round in ``micro_batches`` parts."""

    tp: int
    pp: int
    micro_batches: int

    @property
    def gpus(self) -> int:
        """Of the instance."""
        return self.tp * self.pp

    @property
    def slots(self) -> int:
        """Stage times in one round, after which each request of the batch has one more token.

        A micro-batch passes all ``pp`` stages before it may start again, and a stage takes one
        micro-batch at a time: the larger of both numbers. With fewer micro-batches than stages
        ``1 - micro_batches / pp`` of each stage's time is bubble.
        """
        return max(self.micro_batches, self.pp)

    @property
    def token_share(self) -> float:
        """Stage times that a token costs: its own micro-batch's part of all slots."""
        return self.slots / self.micro_batches

    @property
    def bubble_fraction(self) -> float:
        """Of a stage's time, what it waits for micro-batches."""
        return 1.0 - self.micro_batches / self.slots

    def stage_layers(self, model: ModelShape) -> int:
        """Layers of the largest stage, which sets the pace."""
        return -(-model.layers // self.pp)

    def stage_fraction(self, model: ModelShape) -> float:
        """The same, of all layers."""
        return self.stage_layers(model) / model.layers

    def kv_heads_per_gpu(self, model: ModelShape) -> int:
        """Heads that a rank keeps; with more ranks than KV heads each head has copies."""
        return max(1, model.kv_heads // self.tp)

    def check(self, model: ModelShape, device: Device, where: str) -> None:
        """Raise InputError where the model cannot be cut so, or a stage spans nodes."""
        for name, value in (
            ("tp", self.tp),
            ("pp", self.pp),
            ("micro_batches", self.micro_batches),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise wrong_value(where, name, value, "an integer >= 1")
        if model.heads % self.tp:
            raise wrong_value(where, "tp", self.tp, f"a divisor of the {model.heads} heads")
        if model.kv_heads % self.tp and self.tp % model.kv_heads:
            wanted = f"a divisor or a multiple of the {model.kv_heads} KV heads"
            raise wrong_value(where, "tp", self.tp, wanted)
        if self.tp > device.gpus_per_node:
            wanted = f"at most {device.gpus_per_node}, the GPUs of a node; pp takes further nodes"
            raise wrong_value(where, "tp", self.tp, wanted)
        if self.pp > model.layers:
            raise wrong_value(where, "pp", self.pp, f"at most {model.layers}, the layers")
