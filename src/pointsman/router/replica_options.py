"""What a router is told about one replica beside its address."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pointsman.router.upstream import ReplicaAddress


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """``models``: what it serves, whatever it says; empty where it is to be asked.

    ``max_num_seqs``: its seats. ``costs``: a file of constants that price its work. ``metrics``:
    where its engine shows gauges, if not at ``/metrics``; ``kv_events``: the endpoint of its cache
    events, ``kv_topic`` its topic there, ``kv_replay``: where it tells again what was missed.
    ``weight``: its share of the work, relative to others.
    """

    address: ReplicaAddress
    models: tuple[str, ...] = ()
    max_num_seqs: int | None = None
    costs: Path | None = None
    metrics: str | None = None
    kv_events: str | None = None
    kv_topic: str | None = None
    kv_replay: str | None = None
    weight: float = 1.0

    @property
    def unused(self) -> list[str]:
        """What was set and is read by no part of the router yet."""
        plain = ReplicaOptions(self.address)
        names = ("metrics", "weight")
        return [name for name in names if getattr(self, name) != getattr(plain, name)]
