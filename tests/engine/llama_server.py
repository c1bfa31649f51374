"""Real llama.cpp servers for tests: one with the tiny model, always stopped."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pointsman.bench.engines.llamacpp import LlamaCpp
from pointsman.bench.engines.protocol import HandOff, Instance, Model
from pointsman.bench.engines.running import Running, start


@dataclass(frozen=True)
class Engine:
    running: Running

    @property
    def url(self) -> str:
        return self.running.url

    def kill(self) -> None:
        """It dies at once, without a word to those that it serves."""
        self.running.kill()

    def counter(self, name: str) -> float:
        """One of the engine's own counters, such as ``prompt_tokens_cached_total``."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        [value] = [line.split()[1] for line in lines if line.startswith(f"llamacpp:{name} ")]
        return float(value)


@contextmanager
def llama_server(model: Path, log: Path, slot_folder: Path | None = None) -> Iterator[Engine]:
    """Yields when the model is loaded; what the engine says is in ``log``.

    ``slot_folder``: where slots are saved to and restored from.
    """
    handoff = None if slot_folder is None else HandOff("llamacpp", slot_folder)
    instance = Instance(Model(str(model), "tiny"), handoff=handoff)
    running = start(LlamaCpp(), instance, log)
    try:
        running.wait_until_ready()
        yield Engine(running)
    finally:
        running.stop()
