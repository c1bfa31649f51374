"""What a router is started with, and what its log says of it."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from msgspec import UNSET

from pointsman.core.errors import InputError
from pointsman.dispatch.dispatcher import Rules
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.log_rotation import Rotation
from pointsman.dispatch.prefix_index import DEFAULT_INDEX_BYTES
from pointsman.dispatch.record import PAIRS_VERSION, SCHEMA, VERSION, LogHead
from pointsman.policies.policy import READABLE
from pointsman.router.api_keys import ApiKeys
from pointsman.router.discovery import Names
from pointsman.router.edge import EdgeLimits
from pointsman.router.engine.scraper import ScrapeSettings
from pointsman.router.handoff.protocols import HandOffSettings
from pointsman.router.kv_following import KvSettings
from pointsman.router.listening import is_loopback
from pointsman.router.membership import SPARE_SLOTS
from pointsman.router.models import DEFAULT_INTERVAL_S
from pointsman.router.pairing import Pairing
from pointsman.router.prompt import BLOCK_TOKENS
from pointsman.router.reloading import ConfigSource
from pointsman.router.replica_options import ReplicaOptions
from pointsman.router.sessions import Sessions
from pointsman.router.settings import Resilience
from pointsman.router.ui.access import UiSettings
from pointsman.router.upstream import ReplicaAddress


@dataclass(frozen=True, slots=True)
class AdminSettings:
    """Where the admin API listens, and the keys that it wants, if any.

    Raises InputError for an address that other machines reach, without a key.
    """

    host: str
    port: int
    keys: ApiKeys | None = None

    def __post_init__(self) -> None:
        if self.keys is None and not is_loopback(self.host):
            raise InputError(
                f"--admin {self.host}:{self.port}: can be reached from other machines; expected"
                " --admin-key-file, or a loopback address"
            )


@dataclass(frozen=True, slots=True)
class RouterSettings:
    """What a router is started with.

    ``policy_name`` is how the log names the policy, ``policy_sha256`` the digest of its file.
    ``options``: what else is told of each of the replicas; of none of them, where there are none.
    ``facts``: of each that has none of its own. ``spare_slots``: how many replicas may be added
    while it runs. ``config``: the file that is read again while it runs. ``handoff``: how a prefill
    and a decode replica hand over, whose ``options`` have a role each, and no replica is added.
    """

    replicas: Sequence[ReplicaAddress]
    rules: Rules
    policy_name: str
    facts: ReplicaFacts = field(default_factory=ReplicaFacts)
    host: str = "127.0.0.1"
    port: int = 8080
    log_path: Path | None = None
    log_rotation: Rotation = field(default_factory=Rotation)
    policy_sha256: str | None = None
    limits: EdgeLimits = field(default_factory=EdgeLimits)
    api_keys: ApiKeys | None = None
    prefix_index_bytes: int = DEFAULT_INDEX_BYTES
    models_interval_s: float = DEFAULT_INTERVAL_S
    options: Sequence[ReplicaOptions] = ()
    config: ConfigSource | None = None
    tls: ssl.SSLContext | None = None
    admin: AdminSettings | None = None
    ui: UiSettings | None = None  # None: the live page is not offered
    scrape: ScrapeSettings | None = None  # None: engines are not asked for their metrics
    kv_events: KvSettings | None = None  # None: no engine's are followed
    names: Names | None = None  # None: no replicas are looked up; those found are among the others

    sessions: Sessions = field(default_factory=Sessions)
    resilience: Resilience = field(default_factory=Resilience)
    spare_slots: int = SPARE_SLOTS
    handoff: HandOffSettings | None = None  # None: prefill and decode are not apart

    @property
    def spare(self) -> int:
        """How many replicas may be added: none to pairs, which are those of the start."""
        return self.spare_slots if self.handoff is None else 0

    @property
    def pairing(self) -> Pairing | None:
        """The pairs, new ones each time. Raises InputError for replicas that make none."""
        return None if self.handoff is None else Pairing.of(self.handoff, self.options_of_replicas)

    @property
    def facts_of_replicas(self) -> list[ReplicaFacts]:
        """What is known of each replica beforehand."""
        return [self.facts_of(options) for options in self.options_of_replicas]

    @property
    def options_of_replicas(self) -> list[ReplicaOptions]:
        """What is told of each replica."""
        return list(self.options) or list(map(ReplicaOptions, self.replicas))

    def facts_of(self, options: ReplicaOptions) -> ReplicaFacts:
        """What is known of one beforehand."""
        return self.facts if options.facts is None else options.facts


def head_of(settings: RouterSettings) -> LogHead:
    """The first line of the router's log."""
    policy, pairing = settings.rules.policy, settings.pairing
    return LogHead(
        schema=SCHEMA,
        version=VERSION if pairing is None else PAIRS_VERSION,
        pointsman=version("pointsman"),
        started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        policy=settings.policy_name,
        parameters=dict(policy.parameters),
        reads=sorted(policy.reads),
        signals=list(READABLE),
        replicas=[address.url for address in settings.replicas],
        seed=settings.rules.seed,
        block_tokens=BLOCK_TOKENS,
        facts=settings.facts_of_replicas,
        policy_sha256=settings.policy_sha256,
        holding=settings.resilience.holding.rules,
        pairs=UNSET if pairing is None else list(pairing.pairs.numbered),
        moves_all=UNSET if pairing is None else pairing.pairs.moves_all,
    )
