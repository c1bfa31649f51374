"""Which replicas' KV events ``serve`` follows, from the ``[[replicas]]`` of its file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.core.errors import InputError

if TYPE_CHECKING:
    from pointsman.router.engine.kv_endpoint import KvSource
    from pointsman.router.kv_following import KvSettings
    from pointsman.router.replica_options import ReplicaOptions


def kv_settings_of(replicas: Sequence[ReplicaOptions], file: Path | None) -> KvSettings | None:
    """Those that have ``kv_events``; None where nobody has. Raises InputError."""
    from pointsman.router.kv_following import KvSettings

    sources = []
    for number, replica in enumerate(replicas):
        try:
            source = _source(number, replica)
        except InputError as error:
            raise InputError(f"{file}: replicas {number + 1}: {error}") from None
        if source is not None:
            sources.append(source)
    return KvSettings(sources) if sources else None


def _source(number: int, replica: ReplicaOptions) -> KvSource | None:
    from pointsman.router.engine.kv_endpoint import KvSource, kv_endpoint

    if replica.kv_events is None:
        for key in ("kv_topic", "kv_replay"):
            if getattr(replica, key) is not None:
                raise InputError(f"{key} is for kv_events, which is missing")
        return None
    replay = None if replica.kv_replay is None else kv_endpoint(replica.kv_replay)
    return KvSource(number, kv_endpoint(replica.kv_events), replica.kv_topic, replay)
