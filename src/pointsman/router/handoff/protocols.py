"""The protocols by name."""

from __future__ import annotations

from dataclasses import dataclass

from pointsman.core.checks import check_integer, check_number
from pointsman.core.errors import unknown_name
from pointsman.router.handoff.llamacpp import LlamaCpp
from pointsman.router.handoff.nixl import Nixl
from pointsman.router.handoff.protocol import HandOffProtocol
from pointsman.router.handoff.sglang import DEFAULT_PORT, SGLang
from pointsman.router.handoff.shared_storage import SharedStorage

NAMES = (Nixl.name, SharedStorage.name, SGLang.name, LlamaCpp.name)
DEFAULT_TIMEOUT_MS = 10_000.0


@dataclass(frozen=True, slots=True)
class HandOffSettings:
    """By which protocol, how long a call that moves a cache may take, and SGLang's port.

    Raises InputError for an unknown name and for values outside their ranges.
    """

    name: str
    timeout_ms: float = DEFAULT_TIMEOUT_MS
    bootstrap_port: int = DEFAULT_PORT

    def __post_init__(self) -> None:
        if self.name not in NAMES:
            raise unknown_name("serve", "--handoff", self.name, NAMES)
        check_number("hand-off", "timeout_ms", self.timeout_ms, above=0.0)
        check_integer("hand-off", "bootstrap_port", self.bootstrap_port, 1, most=65535)

    def protocol(self) -> HandOffProtocol:
        """A new one."""
        made: dict[str, HandOffProtocol] = {
            Nixl.name: Nixl(),
            SharedStorage.name: SharedStorage(),
            SGLang.name: SGLang(self.bootstrap_port),
            LlamaCpp.name: LlamaCpp(),
        }
        return made[self.name]
