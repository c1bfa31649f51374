"""Servers that run already, whatever they are: their URLs are all that is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pointsman.bench.engines.attached import attached, engine_at, missing_at_urls, to_start
from pointsman.bench.engines.llamacpp import LlamaCpp
from pointsman.bench.engines.machine import Machine
from pointsman.bench.engines.protocol import CacheState, Engine, Instance, Launch, Ports
from pointsman.bench.engines.running import Running
from pointsman.bench.engines.sglang import Sglang
from pointsman.bench.engines.vllm import Vllm
from pointsman.bench.missing import Missing

KNOWN: tuple[Engine, ...] = (Vllm(), Sglang(), LlamaCpp())


@dataclass(frozen=True, slots=True)
class External:
    """Where its metrics have names of an engine that we know, its version and the reset of its
    cache are that engine's; the hand-off is the word of whoever set it up."""

    name: str = "external"
    signals: str | None = None
    handoffs: tuple[str, ...] = ("nixl", "shared_storage", "sglang", "llamacpp")
    ready_path: str = "/v1/models"
    ready_deadline_s: float = 30.0

    def version(self) -> str | None:
        """Nothing would be started."""
        return None

    def version_of(self, url: str) -> str | None:
        """With the engine's name, for it is not told otherwise."""
        engine = engine_at(url, KNOWN)
        if engine is None:
            return None
        return f"{engine.name} {engine.version_of(url) or '(version unknown)'}"

    def missing(self, instances: Sequence[Instance], machine: Machine) -> list[Missing]:
        """What does not answer, or serves other models."""
        nowhere = [Missing("the URL of a replica", "give one each")] * len(to_start(instances))
        return nowhere + missing_at_urls(instances)

    def launch(self, instance: Instance, ports: Ports) -> Launch:
        """Nothing to start."""
        return attached(instance)

    def reset_cache(self, running: Running) -> CacheState:
        """As the engine that it is."""
        engine = engine_at(running.url, KNOWN)
        if engine is None:
            return CacheState(False, "it is of no engine whose cache we know how to reset")
        return engine.reset_cache(running)
