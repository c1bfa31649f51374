"""Where a fact may stand in a file of somebody else: the lesson fixes the names of few of them.

Places are tried in order; the first one that holds something is taken.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

_SHAPE = ("layout", "backend", "workload", "")


def _anywhere(*names: str) -> tuple[str, ...]:
    return tuple(f"{part}.{name}".lstrip(".") for part in _SHAPE for name in names)


PLACES: dict[str, tuple[str, ...]] = {
    "engine": ("backend.engine", "backend.name", "backend.adapter", "backend"),
    "engine_version": ("backend.version", "backend.engine_version", "versions.engine"),
    "model": ("backend.model.id", "backend.model_id", "backend.model", "workload.model", "model"),
    "model_revision": ("backend.model.revision", "backend.model_revision", "backend.revision"),
    "tokenizer": ("backend.model.tokenizer", "backend.tokenizer", "workload.tokenizer"),
    "tokenizer_revision": ("backend.model.tokenizer_revision", "backend.tokenizer_revision"),
    "dtype": ("backend.model.dtype", "backend.dtype", "workload.dtype", "dtype"),
    "workload_sha256": ("workload.sha256", "workload.trace_sha256", "workload.hash"),
    "requests": ("workload.requests", "workload.num_requests", "workload.num_prompts"),
    "concurrency": ("workload.concurrency", "concurrency"),
    "max_tokens": ("workload.max_tokens", "workload.generate_tokens", "workload.output_tokens"),
    "mode": _anywhere("mode", "serving_mode"),
    "replicas": _anywhere("replicas", "num_replicas"),
    "prefills": _anywhere("prefills", "prefill_workers"),
    "decodes": _anywhere("decodes", "decode_workers"),
    "tp": _anywhere("tp", "tp_degree", "tensor_parallel_size"),
    "pp": _anywhere("pp", "pp_stages", "pipeline_parallel_size"),
    "policy": _anywhere("policy", "routing_strategy", "route_policy"),
}

_NOWHERE = object()


def at(document: Any, place: str) -> Any:
    """What stands at ``a.b.c``, ``_NOWHERE`` if nothing does."""
    for key in place.split("."):
        if not isinstance(document, dict) or key not in document:
            return _NOWHERE
        document = document[key]
    return document


def fact(document: dict[str, Any], name: str) -> str | int | float | None:
    """The fact of that name as text or number; None where no place holds one."""
    for place in PLACES[name]:
        value = at(document, place)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            return value
    return None


def looked_in(name: str) -> str:
    """The places of a fact, for a message."""
    return ", ".join(PLACES[name])


def canonical(value: Any, without: Iterable[str] = ()) -> str:
    """A value as text that two files share exactly when they say the same."""
    left_out = set(without)
    if isinstance(value, dict):
        value = {key: each for key, each in value.items() if key not in left_out}
    return msgspec.json.encode(value, order="deterministic").decode()


SHAPE_KEYS = sorted(
    {
        place.rpartition(".")[2]
        for name in ("mode", "replicas", "prefills", "decodes", "tp", "pp", "policy")
        for place in PLACES[name]
    }
    | {"name", "group", "concurrency"}
)
