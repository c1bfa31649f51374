"""Cost constants from a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from pointsman.core.errors import InputError, unknown_name, wrong_value
from pointsman.core.files import read_file
from pointsman.costs.calibrated import SCHEMA
from pointsman.costs.stages import PD_DISAGGREGATED, StageCosts

KEYS = StageCosts.__struct_fields__
SERVING_MODES = (StageCosts().serving_mode, PD_DISAGGREGATED)
# What a constant is, its least value, and both in words.
_WHOLE = (int, 1, "an integer >= 1")
_AMOUNT = (int | float, 0, "a finite number >= 0")
_MOST = sys.float_info.max


def read_costs(path: Path) -> StageCosts:
    """The constants of a JSON or TOML file (by its suffix); keys that are absent keep defaults.

    Raises InputError for an unknown key or serving mode, a degree that is no integer >= 1, any
    other value that is no finite number >= 0, or a file that is neither or does not exist;
    MachineError when it cannot be read.
    """
    if path.suffix not in (".json", ".toml"):
        raise InputError(f"{path}: the suffix is {path.suffix!r}; expected .json or .toml")
    content = read_file(path)
    decode = msgspec.json.decode if path.suffix == ".json" else msgspec.toml.decode
    try:
        values = decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not {path.suffix[1:].upper()}: {error}") from error
    if not isinstance(values, dict):
        raise InputError(f"{path}: expected an object with the keys {', '.join(KEYS)}")
    if values.get("schema") == SCHEMA:
        raise InputError(
            f"{path}: costs of a recorded engine ({SCHEMA}), whose replicas batch; expected cost"
            f" constants here (see `pointsman init`), or compare --fleet N --costs {path}"
        )
    return checked_costs(values, str(path))


def checked_costs(values: dict[str, Any], where: str) -> StageCosts:
    """Constants from named values, each checked."""
    for key, value in values.items():
        if key not in KEYS:
            raise unknown_name(where, "key", key, KEYS)
        _check(where, key, value)
    costs = StageCosts(**values)
    if costs.serving_mode == PD_DISAGGREGATED and not costs.handoff_bytes_per_ms:
        raise wrong_value(where, "handoff_bytes_per_ms", 0, "a number > 0")
    return costs


def _check(where: str, key: str, value: object) -> None:
    if key == "serving_mode":
        if not isinstance(value, str):
            raise wrong_value(where, key, value, f"one of {', '.join(SERVING_MODES)}")
        if value not in SERVING_MODES:
            raise unknown_name(where, key, value, SERVING_MODES)
        return
    kind, least, wanted = _WHOLE if key in ("tp_degree", "pp_stages") else _AMOUNT
    if isinstance(value, bool) or not isinstance(value, kind) or not least <= value <= _MOST:
        raise wrong_value(where, key, value, wanted)
