"""Accelerators: memory, bandwidth, arithmetic, links."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import msgspec

from pointsman.core.errors import unknown_name
from pointsman.core.files import read_file
from pointsman.costs.fields import POSITIVE, TEXT, WHOLE, Fields, named_tables


class Device(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU and how it is linked; decimal units but for ``memory_gib``.

    ``memory_gib`` is what the driver gives to programs, less than what is printed on the box.
    FLOPs are dense. ``link_gb_per_s`` is one direction of one GPU inside a node,
    ``network_gb_per_s`` the same between nodes. Without ``fp8_tflops`` it computes fp8 in bf16.
    """

    name: str
    memory_gib: float
    bandwidth_gb_per_s: float
    bf16_tflops: float
    link: str
    link_gb_per_s: float
    network_gb_per_s: float
    gpus_per_node: int
    source: str
    fp8_tflops: float | None = None

    @property
    def memory_bytes(self) -> float:
        """The memory in bytes."""
        return self.memory_gib * 2.0**30


Devices = Mapping[str, Device]

# Short names for the usual card of a family, where the family has a usual one.
SHORT_NAMES = {"h100": "h100-sxm", "a100-80": "a100-80gb", "a100-40": "a100-40gb"}

_FIELDS: Fields = {
    "memory_gib": POSITIVE,
    "bandwidth_gb_per_s": POSITIVE,
    "bf16_tflops": POSITIVE,
    "fp8_tflops": POSITIVE.or_absent(),
    "link": TEXT,
    "link_gb_per_s": POSITIVE,
    "network_gb_per_s": POSITIVE,
    "gpus_per_node": WHOLE,
    "source": TEXT,
}


def known_devices() -> dict[str, Device]:
    """The devices of ``costs/devices.toml``."""
    content = files("pointsman.costs").joinpath("devices.toml").read_bytes()
    return _devices_of(content, "devices.toml of pointsman")


def read_devices(path: Path) -> dict[str, Device]:
    """Ours and those of a TOML file of the same form, which go before ours of the same name.

    Raises InputError for a field that is missing, unknown or wrong; MachineError when the file
    cannot be read.
    """
    return {**known_devices(), **_devices_of(read_file(path), str(path))}


def device_named(name: str, devices: Devices | None = None) -> Device:
    """A device of ``devices``, by default ours; a short name stands for the usual card.

    Raises InputError with the nearest name for an unknown one.
    """
    known = known_devices() if devices is None else devices
    name = name if name in known else SHORT_NAMES.get(name, name)
    if name not in known:
        raise unknown_name("device", "name", name, [*known, *SHORT_NAMES])
    return known[name]


def _devices_of(content: bytes, where: str) -> dict[str, Device]:
    tables = named_tables(content, _FIELDS, where)
    return {name: Device(name=name, **values) for name, values in tables.items()}
