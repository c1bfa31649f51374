"""What answered a group's requests, and what was seen of one load of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pointsman.bench.client.rows import Row
from pointsman.bench.engines.running import Running
from pointsman.bench.stages.histograms import HISTOGRAMS, NOTHING, EngineHistograms
from pointsman.bench.stages.pages import Pages
from pointsman.core.errors import InputError


@dataclass(frozen=True, slots=True)
class Served:
    """The engines of a group.

    ``signals``: their name in the router's readings (Engine.signals). ``urls``: all of them, in the
    order that numbers them. ``prefills``: those that compute prompts for the others, and
    ``handoff``: by which protocol; none where prefill and decode are not apart.
    """

    signals: str | None
    urls: tuple[str, ...]
    prefills: tuple[str, ...] = ()
    handoff: str | None = None
    kv_bytes_per_token: float | None = None

    def __post_init__(self) -> None:
        if bool(self.prefills) != (self.handoff is not None):
            raise InputError(
                "stages: prefills without a hand-off, or the other way round; expected both or none"
            )

    @classmethod
    def by(cls, replicas: Sequence[Running], kv_bytes_per_token: float | None = None) -> Served:
        """Of engines that run."""
        instances = [each.instance for each in replicas]
        handoffs = [
            each.handoff.protocol
            for each in instances
            if each.role != "none" and each.handoff is not None
        ]
        prefills = [each.url for each in replicas if each.instance.role == "prefill"]
        return cls(
            signals=replicas[0].engine.signals,
            urls=tuple(each.url for each in replicas),
            prefills=tuple(prefills),
            handoff=handoffs[0] if handoffs else None,
            kv_bytes_per_token=kv_bytes_per_token,
        )

    @property
    def takers(self) -> tuple[str, ...]:
        """Where prompts are computed."""
        return self.prefills or self.urls

    @property
    def histograms(self) -> EngineHistograms:
        """What their pages of metrics tell."""
        return HISTOGRAMS.get(self.signals or "", NOTHING)


@dataclass(frozen=True, slots=True)
class ServedLoad:
    """One repeat: all rows of the client, warm-up too, and what else was written meanwhile.

    ``log``: files of the router's log, which may hold other loads as well; none: no router.
    ``before``, ``after``: the pages of the engines' metrics.
    """

    rows: Sequence[Row]
    log: tuple[Path, ...] = ()
    before: Pages = field(default_factory=dict)
    after: Pages = field(default_factory=dict)
