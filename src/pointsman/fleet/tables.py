"""A fleet as tables of plain values, from a TOML file or from flags, checked once and typed.

``docs/fleets.md`` lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pointsman.core.errors import InputError, missing_field, unknown_name
from pointsman.core.files import read_file
from pointsman.costs.calibrated import read_calibrated
from pointsman.costs.devices import SHORT_NAMES, Device, Devices, device_named
from pointsman.costs.fields import (
    AMOUNT,
    COUNT,
    FLAG,
    GROUP,
    POSITIVE,
    TEXT,
    WHOLE,
    Fields,
    Wanted,
    check_fields,
    toml_table,
)
from pointsman.costs.models import Models, model_named
from pointsman.costs.roofline import Instance
from pointsman.fleet.description import FleetDescription, Link
from pointsman.fleet.groups import ROLES, SCHEDULING_POLICIES, Group, Limits, Recorded
from pointsman.sim.conditions import EVENTS, Change, ClosedLoop, Conditions, Holding
from pointsman.sim.knowledge import Signals
from pointsman.sim.routers import ONE_ROUTER, Routers

Table = dict[str, Any]

SLOWS = "slows"

_TABLES = Wanted(
    "tables, each under its own [[...]]",
    lambda value: isinstance(value, list) and all(isinstance(item, dict) for item in value),
)
_LIMITS: Fields = {
    "max_num_seqs": WHOLE.or_absent(),
    "max_num_batched_tokens": WHOLE.or_absent(),
    "kv_blocks": WHOLE.or_absent(),
    "max_model_len": WHOLE.or_absent(),
    "scheduling_policy": TEXT.or_absent(),
}
_SHAPE: Fields = {
    "tp": WHOLE.or_absent(),
    "pp": WHOLE.or_absent(),
    "bytes_per_weight": POSITIVE.or_absent(),
    "bytes_per_kv_value": POSITIVE.or_absent(),
    "gpu_memory_utilization": POSITIVE.or_absent(),
    "expected_batch": WHOLE.or_absent(),
}
_GROUP: Fields = {
    "count": WHOLE,
    "device": TEXT.or_absent(),
    "model": TEXT.or_absent(),
    "costs": TEXT.or_absent(),
    "engine_version": TEXT.or_absent(),
    "role": TEXT.or_absent(),
    **_SHAPE,
    **_LIMITS,
}
_FLEET: Fields = {
    "model": TEXT.or_absent(),
    "block_size": WHOLE.or_absent(),
    "replicas": _TABLES,
    "link": GROUP.or_absent(),
    "signals": GROUP.or_absent(),
    "holding": GROUP.or_absent(),
    "closed_loop": GROUP.or_absent(),
    "routers": GROUP.or_absent(),
    "changes": _TABLES.or_absent(),
}
_LINK: Fields = {
    "gb_per_s": POSITIVE.or_absent(),
    "base_ms": AMOUNT.or_absent(),
    "kv_bytes_per_token": POSITIVE.or_absent(),
    "contention": FLAG.or_absent(),
    "moves_all": FLAG.or_absent(),
}
_SIGNALS: Fields = {"metrics_age_ms": AMOUNT.or_absent(), "event_delay_ms": AMOUNT.or_absent()}
_HOLDING: Fields = {
    "wait_ms": replace(AMOUNT, words="a finite number >= 0, or --hold-ms"),
    "order": TEXT.or_absent(),
    "most_held": WHOLE.or_absent(),
    "ageing": AMOUNT.or_absent(),
    "ttft_ms": POSITIVE.or_absent(),
}
_CLOSED_LOOP: Fields = {
    "concurrency": replace(WHOLE, words="an integer >= 1, or --concurrency"),
    "think_ms": AMOUNT.or_absent(),
}
_ROUTERS: Fields = {
    "count": replace(WHOLE, words="an integer >= 1, or --routers"),
    "dealt": TEXT.or_absent(),
}
_CHANGE: Fields = {
    "time_ms": AMOUNT,
    "replica": COUNT,
    "event": TEXT,
    "factor": POSITIVE.or_absent(),
}


@dataclass(frozen=True, slots=True)
class Known:
    """Which names there are; files of costs are looked up from ``folder``."""

    models: Models
    devices: Devices
    folder: Path = Path()


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """What goes before the tables of a file: for every group, and for the tables of that name.

    ``model`` is that of all groups without costs of their own, ``engine_version`` of all with
    them. ``ttft_ms`` is the objective that
    held requests have where nobody states one.
    """

    groups: Mapping[str, Any]
    tables: Mapping[str, Mapping[str, Any]]
    model: str | None = None
    engine_version: str | None = None
    block_size: int | None = None
    ttft_ms: float | None = None


def fleet_tables(path: Path) -> Table:
    """The tables of a TOML file. Raises InputError for no TOML; MachineError as ``read_file``."""
    return toml_table(read_file(path), str(path))


def described(tables: Table, known: Known, overrides: Overrides, where: str) -> FleetDescription:
    """The fleet of the tables.

    Raises InputError for a field that is missing, unknown or wrong, saying where; MachineError
    when a file of costs cannot be read.
    """
    check_fields(tables, _FLEET, where)
    if not tables["replicas"]:
        raise missing_field(where, "replicas", "at least one group of them")
    groups = [{**group, **overrides.groups} for group in tables["replicas"]]
    _give_model(groups, tables.get("model"), overrides.model)
    _give_version(groups, overrides.engine_version)
    given = {
        name: {**tables.get(name, {}), **overrides.tables.get(name, {})}
        for name in ("link", "signals", "holding", "closed_loop", "routers")
    }
    if given["holding"] and overrides.ttft_ms is not None:
        given["holding"].setdefault("ttft_ms", overrides.ttft_ms)
    block_size = overrides.block_size
    return FleetDescription(
        groups=tuple(
            _group(group, known, f"{where}: replicas[{number}]")
            for number, group in enumerate(groups)
        ),
        link=_made(Link, given["link"], _LINK, f"{where}: link"),
        conditions=_conditions(given, tables.get("changes", ()), where),
        block_size=tables.get("block_size") if block_size is None else block_size,
    )


def _give_model(groups: list[Table], common: str | None, override: str | None) -> None:
    """Set the model of the groups that are to have one."""
    unpriced = [group for group in groups if "costs" not in group]
    if override is not None and not unpriced:
        raise InputError(
            f"--model is {override!r}, and every group has costs of its own; expected the one or"
            " the other"
        )
    for group in unpriced:
        if override is not None:
            group["model"] = override
        elif common is not None:
            group.setdefault("model", common)


def _give_version(groups: list[Table], version: str | None) -> None:
    """Set the version that will serve of the groups whose costs were recorded on one."""
    recorded = [group for group in groups if "costs" in group]
    if version is not None and not recorded:
        raise InputError(
            f"--engine-version is {version!r}, and no group has recorded costs to hold it against;"
            " expected --costs FILE, or costs in the group's table"
        )
    for group in recorded if version is not None else ():
        group["engine_version"] = version


def _group(values: Table, known: Known, where: str) -> Group:
    check_fields(values, _GROUP, where)
    for name, words in (("role", ROLES), ("scheduling_policy", SCHEDULING_POLICIES)):
        if name in values and values[name] not in words:
            raise unknown_name(where, name, values[name], words)
    return Group(
        count=values["count"],
        hardware=_hardware(values, known, where),
        role=values.get("role"),
        limits=Limits(**{name: values[name] for name in _LIMITS if name in values}),
    )


def _hardware(values: Table, known: Known, where: str) -> Instance | Recorded:
    if "costs" in values:
        return _recorded(values, known, where)
    if "engine_version" in values:
        raise InputError(
            f"{where}: engine_version goes with costs, which say on which version they were"
            " recorded; expected costs = FILE beside it"
        )
    if "device" not in values:
        raise InputError(
            f"{where}: neither a device nor a file of costs; expected 4xDEVICE with --model, or"
            " --costs FILE, or either of them in the group's table"
        )
    if "model" not in values:
        raise missing_field(where, "model", "--model NAME or a model in the file")
    shape = {name: values[name] for name in _SHAPE if name in values}
    for name in ("max_num_seqs", "max_num_batched_tokens"):
        if name in values:
            shape[name] = values[name]
    return Instance(
        model=model_named(values["model"], known.models),
        device=_device(values["device"], known.devices, where),
        **shape,
    )


def _device(name: str, devices: Devices, where: str) -> Device:
    if name in devices:
        return devices[name]
    if name not in SHORT_NAMES:
        raise unknown_name(where, "device", name, [*devices, *SHORT_NAMES])
    return device_named(SHORT_NAMES[name], devices)


def _recorded(values: Table, known: Known, where: str) -> Recorded:
    for name in ("device", "model", *_SHAPE):
        if name in values:
            raise InputError(
                f"{where}: {name} does not go with costs, which say it; expected the one or the"
                " other"
            )
    path = known.folder / values["costs"]
    return Recorded(str(path), read_calibrated(path), values.get("engine_version"))


def _conditions(given: Mapping[str, Table], changes: list[Table], where: str) -> Conditions:
    return Conditions(
        signals=_made(Signals, given["signals"], _SIGNALS, f"{where}: signals") or Signals(),
        holding=_made(Holding, given["holding"], _HOLDING, f"{where}: holding"),
        closed_loop=_made(ClosedLoop, given["closed_loop"], _CLOSED_LOOP, f"{where}: closed_loop"),
        changes=tuple(
            _change(change, f"{where}: changes[{number}]") for number, change in enumerate(changes)
        ),
        routers=_made(Routers, given["routers"], _ROUTERS, f"{where}: routers") or ONE_ROUTER,
    )


def _change(values: Table, where: str) -> Change:
    check_fields(values, _CHANGE, where)
    event = values["event"]
    if event not in EVENTS:
        raise unknown_name(where, "event", event, EVENTS)
    if event == SLOWS and "factor" not in values:
        raise missing_field(where, "factor", f"how many times as long iterations take, {SLOWS}")
    if event != SLOWS and "factor" in values:
        raise InputError(
            f"{where}: factor goes with {SLOWS}, and this one {event}; expected no factor"
        )
    return Change(**values)


def _made(kind: type[Any], values: Table, fields: Fields, where: str) -> Any:
    """One of ``kind``; None where nothing was given."""
    return kind(**check_fields(values, fields, where)) if values else None
