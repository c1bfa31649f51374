"""What a router is told about one replica beside its address."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pointsman.dispatch.facts import ReplicaFacts
from pointsman.router.upstream import ReplicaAddress

PREFILL = "prefill"
DECODE = "decode"
ROLES = (PREFILL, DECODE)


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """``models``: what it serves, whatever it says; empty where it is to be asked.

    ``max_num_seqs``: its seats. ``costs``: a file of constants that price its work. ``facts``: what
    these two come to; None: those of all. ``metrics``: the page where its engine shows gauges, if
    not at its own ``/metrics``; ``kv_events``: the endpoint of its cache events, ``kv_topic`` its
    topic there, ``kv_replay``: where it tells again what was missed. ``weight``: of how many
    requests it is a candidate, relative to others.
    """

    address: ReplicaAddress
    models: tuple[str, ...] = ()
    max_num_seqs: int | None = None
    costs: Path | None = None
    metrics: ReplicaAddress | None = None
    kv_events: str | None = None
    kv_topic: str | None = None
    kv_replay: str | None = None
    weight: float = 1.0
    facts: ReplicaFacts | None = None
    role: str | None = None
    bootstrap_port: int | None = None

    def is_same_engine_as(self, other: ReplicaOptions) -> bool:
        """Whether a replica that runs may go on with these: what it is taken to compute with, and
        the events of its cache, are told at its start."""
        return _told_at_start(self) == _told_at_start(other)


def _told_at_start(options: ReplicaOptions) -> tuple[object, ...]:
    events = options.kv_events, options.kv_topic, options.kv_replay
    return options.facts, *events, options.role, options.bootstrap_port
