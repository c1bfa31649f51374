"""Cost constants from a file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec

from pointsman.core.errors import InputError, MachineError, unknown_name, wrong_value
from pointsman.costs.stages import PD_DISAGGREGATED, StageCosts

KEYS = StageCosts.__struct_fields__


def read_costs(path: Path) -> StageCosts:
    """The constants of a JSON or TOML file (by its suffix); keys that are absent keep defaults.

    Raises InputError for an unknown key, a value that is no finite number >= 0, or a file that is
    neither; MachineError when it cannot be read.
    """
    if path.suffix not in (".json", ".toml"):
        raise InputError(f"{path}: the suffix is {path.suffix!r}; expected .json or .toml")
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MachineError(f"cannot read {path}: {error.strerror}") from error
    decode = msgspec.json.decode if path.suffix == ".json" else msgspec.toml.decode
    try:
        values = decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not {path.suffix[1:].upper()}: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"{path}: expected an object with the keys {', '.join(KEYS)}")
    return checked_costs(values, str(path))


def checked_costs(values: dict[str, Any], where: str) -> StageCosts:
    """Constants from named values, each checked."""
    for key, value in values.items():
        if key not in KEYS:
            raise unknown_name(where, "key", key, KEYS)
        if key == "serving_mode":
            if not isinstance(value, str):
                raise wrong_value(where, key, value, f"a string (replica, {PD_DISAGGREGATED})")
        elif isinstance(value, bool) or not isinstance(value, int | float) or not _good(value):
            raise wrong_value(where, key, value, "a finite number >= 0")
    costs = StageCosts(**values)
    if costs.serving_mode == PD_DISAGGREGATED and not costs.handoff_bytes_per_ms:
        raise wrong_value(where, "handoff_bytes_per_ms", 0, "a number > 0")
    return costs


def _good(value: float) -> bool:
    return math.isfinite(value) and value >= 0
