"""A model and a device so small that their costs are worked out by hand, and files of them."""

from __future__ import annotations

from typing import Any

from pointsman.costs.devices import Device
from pointsman.costs.models import ModelShape

TINY = ModelShape(
    name="tiny",
    layers=2,
    hidden=4,
    heads=2,
    kv_heads=1,
    head_dim=2,
    intermediate=3,
    vocab=5,
    max_context_tokens=100,
    source="by hand",
)
# 2 bytes/ms of memory, of which 1.7 are used; 10 FLOPs/ms; links of 4 bytes/ms, 3 used.
SLOW = Device(
    name="slow",
    memory_gib=1.0,
    bandwidth_gb_per_s=2e-6,
    bf16_tflops=1e-8,
    fp8_tflops=2e-8,
    link="wire",
    link_gb_per_s=4e-6,
    network_gb_per_s=2e-6,
    gpus_per_node=2,
    source="by hand",
)
MODEL_FIELDS: dict[str, Any] = {
    "layers": 2,
    "hidden": 4,
    "heads": 2,
    "kv_heads": 1,
    "head_dim": 2,
    "intermediate": 3,
    "vocab": 5,
    "max_context_tokens": 100,
    "source": "by hand",
}
DEVICE_FIELDS: dict[str, Any] = {
    "memory_gib": 1.0,
    "bandwidth_gb_per_s": 2.0,
    "bf16_tflops": 1.0,
    "link": "wire",
    "link_gb_per_s": 4.0,
    "network_gb_per_s": 2.0,
    "gpus_per_node": 2,
    "source": "by hand",
}


def toml_of(name: str, fields: dict[str, Any]) -> str:
    lines = [f"{key} = {_literal(value)}" for key, value in fields.items() if value is not None]
    return "\n".join([f'["{name}"]', *lines, ""])


def _literal(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else repr(value)
