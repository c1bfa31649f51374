"""Costs of a batching engine from a model's shape and a device: the roofline.

An iteration's matrix products take the longer of two times, reading the weights and computing;
the simulator wants a line. ``_chord_ms`` is the chord of that maximum between an empty batch and a
full one: exact at both ends, never below the roofline between them. Attention is added to it.
docs/costs.md has the formulas and how far they are from recorded runs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pointsman.core.errors import InputError, wrong_value
from pointsman.costs.communication import communication_of
from pointsman.costs.devices import Device
from pointsman.costs.iteration import IterationCosts
from pointsman.costs.memory import (
    OTHER_BYTES,
    TABLE_BYTES,
    activation_bytes_per_gpu,
    kv_bytes_per_token_per_gpu,
    weight_bytes_per_gpu,
)
from pointsman.costs.models import ModelShape
from pointsman.costs.parallel import Parallel

# Round figures; what of a datasheet's peaks an engine gets.
# Matrix products of many tokens: 0.65 in inference-sim/inference-sim, hardware_config.json
# (mfuPrefill), 0.9 and more for large ones alone in calculon-ai/calculon, systems/a100_80g.json.
MATRIX_USE = 0.7
# Attention: 0.5 to 0.73 on an A100 (FlashAttention-2, arXiv 2307.08691).
ATTENTION_USE = 0.5
# Memory: 0.8 in ai-dynamo/aiconfigurator, systems/*.yaml; 0.9 in calculon.
BANDWIDTH_USE = 0.85
# A pass through the scheduler, and a layer's launches (inference-sim: TOverheadMicros,
# perLayerOverhead).
PASS_OVERHEAD_MS = 0.5
LAYER_OVERHEAD_MS = 0.02
# Scheduling, sampling and handing out the token of one sequence.
SEQUENCE_OVERHEAD_MS = 0.01

_GIB = 2.0**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One replica: a model on ``tp * pp`` GPUs of one kind.

    ``micro_batches`` (default: ``pp``, which fills the pipeline) hold for a steady state; a single
    long prompt has one. ``expected_batch`` decodes at once: of a model with experts the weights
    read depend on it, and are too many below it, too few above. ``max_num_seqs`` and
    ``max_num_batched_tokens`` are the engine's, of all micro-batches together.
    Raises InputError where the model cannot be cut so; whether it fits is asked apart.
    """

    model: ModelShape
    device: Device
    tp: int = 1
    pp: int = 1
    bytes_per_weight: float = 2.0
    bytes_per_kv_value: float = 2.0
    gpu_memory_utilization: float = 0.9
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    micro_batches: int | None = None
    expected_batch: int = 32

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "expected_batch"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise wrong_value(self._where, name, value, "an integer >= 1")
        for name in ("bytes_per_weight", "bytes_per_kv_value"):
            if not 0 < getattr(self, name) <= 4:
                raise wrong_value(self._where, name, getattr(self, name), "a number in 0..4, not 0")
        if not 0 < self.gpu_memory_utilization <= 1:
            value = self.gpu_memory_utilization
            raise wrong_value(
                self._where, "gpu_memory_utilization", value, "a number in 0..1, not 0"
            )
        self.parallel.check(self.model, self.device, self._where)

    @property
    def parallel(self) -> Parallel:
        """How it is spread."""
        micro_batches = self.pp if self.micro_batches is None else self.micro_batches
        return Parallel(self.tp, self.pp, micro_batches)

    @property
    def gpus(self) -> int:
        """GPUs that it takes."""
        return self.parallel.gpus

    @property
    def kv_bytes_per_token(self) -> float:
        """One token's keys and values on all GPUs together; copies of KV heads count."""
        copies = max(1, self.tp // self.model.kv_heads)
        return self.model.kv_bytes_per_token(self.bytes_per_kv_value) * copies

    def iteration_costs(self) -> IterationCosts:
        """The five parameters of an iteration (a round of all micro-batches)."""
        parallel, share = self.parallel, self.parallel.token_share
        said = self.communication_costs()
        overhead_ms = PASS_OVERHEAD_MS + LAYER_OVERHEAD_MS * parallel.stage_layers(self.model)
        head = self.model.embedding_parameters
        layers = self.model.computed_layer_parameters
        return IterationCosts(
            per_iteration_ms=parallel.slots * (self._weights_ms() + overhead_ms)
            + said.per_iteration_ms,
            per_prefill_token_ms=share * self._chord_ms(layers, self.max_num_batched_tokens)
            + said.per_prefill_token_ms,
            per_decode_ms=share * self._chord_ms(layers + head, self.max_num_seqs)
            + SEQUENCE_OVERHEAD_MS
            + said.per_decode_ms,
            per_kv_token_ms=share * self._kv_bytes_per_gpu() / self._bytes_per_ms,
            per_attention_ms=share * self._attention_ms(),
        )

    def communication_costs(self) -> IterationCosts:
        """The part of ``iteration_costs`` that is TP and PP communication."""
        return communication_of(self.model, self.device, self.parallel)

    def fits(self, block_size: int = 16) -> bool:
        """Whether weights and activations leave room for blocks of a KV cache."""
        return self._free_blocks(block_size) >= 1

    def kv_blocks(self, block_size: int = 16) -> int:
        """Blocks that requests can have: all that fit but one, which vLLM keeps for itself
        (``vllm/v1/core/block_pool.py``).

        Raises InputError where none fits, saying by how much, and what would do.
        """
        blocks = self._free_blocks(block_size)
        if blocks < 1 and self.fits():
            room = math.floor(self._left_bytes() / self._kv_bytes_per_gpu())
            wanted = f"at most {room // 2}, for there is room for the KV of {room} tokens"
            raise wrong_value(self._where, "block_size", block_size, wanted)
        if blocks < 1:
            raise self._too_large()
        return blocks

    def _free_blocks(self, block_size: int) -> int:
        if isinstance(block_size, bool) or not isinstance(block_size, int) or block_size < 1:
            raise wrong_value(self._where, "block_size", block_size, "an integer >= 1")
        return math.floor(self._left_bytes() / (block_size * self._kv_bytes_per_gpu())) - 1

    @property
    def _where(self) -> str:
        return f"{self.model.name} on {self.device.name}"

    @property
    def _bytes_per_ms(self) -> float:
        return self.device.bandwidth_gb_per_s * 1e6 * BANDWIDTH_USE

    @property
    def _peak_flops_per_ms(self) -> float:
        """Of matrix products; weights of 4 bits, or of 8 without the arithmetic, go in bf16."""
        fp8 = self.device.fp8_tflops if self.bytes_per_weight == 1 else None
        return (self.device.bf16_tflops if fp8 is None else fp8) * 1e9

    def _weights_ms(self) -> float:
        """Reading what one micro-batch needs of a stage."""
        model, parallel = self.model, self.parallel
        touched = model.experts_touched(self.expected_batch / parallel.micro_batches)
        layer = model.shared_layer_parameters + touched * model.expert_parameters
        layers = model.layers * layer * self.bytes_per_weight
        whole = layers + model.embedding_parameters * TABLE_BYTES
        return parallel.stage_fraction(model) * whole / self.tp / self._bytes_per_ms

    def _chord_ms(self, parameters: float, most_tokens: int) -> float:
        """What a further token adds to a stage's matrix products: the chord of the maximum."""
        flops = 2 * parameters * self.parallel.stage_fraction(self.model) / self.tp
        computed_ms = flops / (self._peak_flops_per_ms * MATRIX_USE)
        full = max(1.0, most_tokens / self.parallel.micro_batches)
        return max(0.0, computed_ms - self._weights_ms() / full)

    def _attention_ms(self) -> float:
        """One pair of tokens: a product for the score and one for the value, in bf16."""
        model, parallel = self.model, self.parallel
        flops = 4 * model.heads * model.head_dim * parallel.stage_layers(model) / self.tp
        return flops / (self.device.bf16_tflops * 1e9 * ATTENTION_USE)

    def _kv_bytes_per_gpu(self) -> float:
        return kv_bytes_per_token_per_gpu(self.model, self.parallel, self.bytes_per_kv_value)

    def _needed_bytes(self) -> float:
        """On the fullest GPU, without the KV cache."""
        weights = weight_bytes_per_gpu(self.model, self.parallel, self.bytes_per_weight)
        tokens, sequences = self.max_num_batched_tokens, self.max_num_seqs
        activations = activation_bytes_per_gpu(self.model, self.parallel, tokens, sequences)
        return weights + activations + OTHER_BYTES

    def _left_bytes(self) -> float:
        return self.device.memory_bytes * self.gpu_memory_utilization - self._needed_bytes()

    def _too_large(self) -> InputError:
        usable_gib = self.device.memory_bytes * self.gpu_memory_utilization / _GIB
        needed_gib = self._needed_bytes() / _GIB
        lacking_gib = max(0.1, needed_gib - usable_gib)
        return InputError(
            f"{self._where}: tp={self.tp} pp={self.pp} needs {needed_gib:.1f} GiB a GPU before any"
            f" KV cache and has {usable_gib:.1f} GiB, {lacking_gib:.1f} GiB too few;"
            f" {self._advice()}"
        )

    def _advice(self) -> str:
        shapes = [
            (tp * pp, pp, tp)
            for tp in range(1, self.device.gpus_per_node + 1)
            for pp in range(1, self.model.layers + 1)
        ]
        for gpus, pp, tp in sorted(shapes):
            other = self._reshaped(tp, pp)
            if other is not None and other.fits():
                return f"tp={tp} pp={pp} would fit, on {gpus} GPUs"
        return "no tp * pp of this device would fit; take fewer bytes a weight or another device"

    def _reshaped(self, tp: int, pp: int) -> Instance | None:
        try:
            return replace(self, tp=tp, pp=pp, micro_batches=None)
        except InputError:
            return None
