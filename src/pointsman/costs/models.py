"""The shapes of models: what there is to compute, to read and to keep.

Decoders with grouped-query attention over the whole context, gated MLPs of three matrices, and
where there are experts, all layers alike. Other layouts (latent attention, sliding windows, state
spaces) keep another KV cache and are not described by this.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import msgspec

from pointsman.core.errors import unknown_name, wrong_value
from pointsman.core.files import read_file
from pointsman.costs.fields import FLAG, TEXT, WHOLE, Fields, named_tables


class ModelShape(msgspec.Struct, frozen=True, kw_only=True):
    """One model; ``experts`` is 1 where the MLP is dense, and ``intermediate`` that of one expert.

    ``source`` says where the figures are from.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    max_context_tokens: int
    source: str
    experts: int = 1
    active_experts: int = 1
    tied_embeddings: bool = False

    @property
    def embedding_parameters(self) -> int:
        """Of one table of the vocabulary: the embedding, or the head."""
        return self.vocab * self.hidden

    @property
    def expert_parameters(self) -> int:
        """Of one expert in one layer: gate, up and down."""
        return 3 * self.hidden * self.intermediate

    @property
    def shared_layer_parameters(self) -> int:
        """Of one layer without its experts: attention, two norms, the router."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        router = self.hidden * self.experts if self.experts > 1 else 0
        return attention + 2 * self.hidden + router

    @property
    def layer_parameters(self) -> int:
        """Of one layer with all its experts."""
        return self.shared_layer_parameters + self.experts * self.expert_parameters

    @property
    def parameters(self) -> int:
        """All of them; biases and norms of single heads, below 0.1 %, are left out."""
        tables = 1 if self.tied_embeddings else 2
        return (
            self.layers * self.layer_parameters + tables * self.embedding_parameters + self.hidden
        )

    @property
    def computed_layer_parameters(self) -> int:
        """Those of all layers that one token is multiplied with: of the experts only its own."""
        experts = self.active_experts * self.expert_parameters
        return self.layers * (self.shared_layer_parameters + experts)

    def experts_touched(self, tokens: float) -> float:
        """Experts of a layer that a batch needs, each token taking its own with equal chances.

        ``experts * (1 - (1 - active / experts) ** tokens)``: the expected number of drawers that
        are not empty. Real routers are less even and touch fewer.
        """
        missed: float = (1.0 - self.active_experts / self.experts) ** tokens
        return self.experts * (1.0 - missed)

    def kv_bytes_per_token(self, bytes_per_value: float = 2) -> float:
        """Keys and values of one token over all layers, each head once."""
        return 2 * self.layers * self.kv_heads * self.head_dim * bytes_per_value


Models = Mapping[str, ModelShape]

_FIELDS: Fields = {
    "layers": WHOLE,
    "hidden": WHOLE,
    "heads": WHOLE,
    "kv_heads": WHOLE,
    "head_dim": WHOLE,
    "intermediate": WHOLE,
    "vocab": WHOLE,
    "max_context_tokens": WHOLE,
    "source": TEXT,
    "experts": WHOLE.or_absent(),
    "active_experts": WHOLE.or_absent(),
    "tied_embeddings": FLAG.or_absent(),
}


def known_models() -> dict[str, ModelShape]:
    """The models of ``costs/models.toml``."""
    content = files("pointsman.costs").joinpath("models.toml").read_bytes()
    return _models_of(content, "models.toml of pointsman")


def read_models(path: Path) -> dict[str, ModelShape]:
    """Ours and those of a TOML file of the same form, which go before ours of the same name.

    Raises InputError for a field that is missing, unknown or wrong; MachineError when the file
    cannot be read.
    """
    return {**known_models(), **_models_of(read_file(path), str(path))}


def model_named(name: str, models: Models | None = None) -> ModelShape:
    """A model of ``models``, by default ours; InputError with the nearest name for an unknown."""
    known = known_models() if models is None else models
    if name not in known:
        raise unknown_name("model", "name", name, known)
    return known[name]


def _models_of(content: bytes, where: str) -> dict[str, ModelShape]:
    tables = named_tables(content, _FIELDS, where)
    models = {name: ModelShape(name=name, **values) for name, values in tables.items()}
    for name, model in models.items():
        _check(model, f"{where}: [{name}]")
    return models


def _check(model: ModelShape, where: str) -> None:
    if model.heads % model.kv_heads:
        wanted = f"a divisor of heads, {model.heads}"
        raise wrong_value(where, "kv_heads", model.kv_heads, wanted)
    if model.active_experts > model.experts:
        wanted = f"at most experts, {model.experts}"
        raise wrong_value(where, "active_experts", model.active_experts, wanted)
