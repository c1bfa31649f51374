"""The ``[[replicas]]`` of a file for ``serve --config``, checked once and typed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.core.errors import wrong_value
from pointsman.costs.fields import POSITIVE, TEXT, WHOLE, Fields, Wanted, check_fields

if TYPE_CHECKING:
    from pointsman.router.replica_options import ReplicaOptions

_TABLES = Wanted(
    "tables, each under its own [[replicas]]",
    lambda value: isinstance(value, list) and all(isinstance(item, dict) for item in value),
)
_NAMES = Wanted(
    "a list of names that is not empty",
    lambda value: isinstance(value, list) and bool(value) and all(map(TEXT.holds, value)),
)
_ROLE = Wanted("prefill or decode", lambda value: value in ("prefill", "decode"))

REPLICA_FIELDS: Fields = {
    "url": TEXT,
    "models": _NAMES.or_absent(),
    "max_num_seqs": WHOLE.or_absent(),
    "costs": TEXT.or_absent(),
    "metrics": TEXT.or_absent(),
    "kv_events": TEXT.or_absent(),
    "kv_topic": TEXT.or_absent(),
    "kv_replay": TEXT.or_absent(),
    "weight": POSITIVE.or_absent(),
    "role": _ROLE.or_absent(),
    "bootstrap_port": WHOLE.or_absent(),
}


def read_replicas(tables: object, where: str, folder: Path) -> list[ReplicaOptions]:
    """The replicas of a file; paths are taken from its folder. Raises InputError."""
    if not (isinstance(tables, list) and _TABLES.holds(tables)):
        raise wrong_value(where, "replicas", tables, _TABLES.words)
    return [
        _replica(table, f"{where}: replicas {number}", folder)
        for number, table in enumerate(tables, start=1)
    ]


def _replica(table: object, where: str, folder: Path) -> ReplicaOptions:
    from pointsman.router.engine.scraper import page_address
    from pointsman.router.replica_options import ReplicaOptions
    from pointsman.router.upstream import replica_address

    values = dict(check_fields(table, REPLICA_FIELDS, where))
    address = replica_address(values.pop("url"))
    models = tuple(values.pop("models", ()))
    if "metrics" in values:
        values["metrics"] = page_address(values["metrics"], f"{where}: metrics")
    if "costs" in values:
        values["costs"] = folder / values["costs"]
    return ReplicaOptions(address, models, **values)
