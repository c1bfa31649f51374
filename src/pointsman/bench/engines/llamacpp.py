"""llama.cpp's server, of the ``xllamacpp`` wheel (extra [llamacpp]): it runs on any laptop.

Its hand-off moves slots through a folder. Its cache is a prefix a slot and the host's store of
prompts (``--cache-ram-mib``); ``/slots/ID?action=erase`` leaves the second one (run: 719 of 720
tokens were cached after all slots were erased), so it is emptied by a restart, of a tenth of a
second.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pointsman.bench.engines.attached import attached, missing_at_urls, to_start
from pointsman.bench.engines.http_calls import said_at
from pointsman.bench.engines.machine import Machine, installed_version, missing_modules
from pointsman.bench.engines.protocol import (
    CacheState,
    Instance,
    Launch,
    Ports,
    check_handoff,
    local_url,
)
from pointsman.bench.engines.running import Running
from pointsman.bench.engines.tiny_model import EXTRA, tiny_path
from pointsman.bench.installed import install_command
from pointsman.bench.missing import Missing
from pointsman.core.errors import InputError

SERVER = "pointsman.bench.engines.llamacpp_server"
SLOTS = 8
CONTEXT_TOKENS = 4096
_MAGIC = b"GGUF"


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """One slot for each request at once, one thread for each of the instance's cores, else one."""

    python: str = sys.executable
    name: str = "llamacpp"
    signals: str | None = "llama.cpp"
    handoffs: tuple[str, ...] = ("llamacpp",)
    ready_path: str = "/health"
    ready_deadline_s: float = 60.0

    def version(self) -> str | None:
        """Of the wheel: what the server itself says is no version."""
        version = installed_version(self.python, "xllamacpp")
        return version and f"xllamacpp {version}"

    def version_of(self, url: str) -> str | None:
        """Its build, ``b0-unknown`` for that of the wheel."""
        return said_at(url, "/props", "build_info")

    def missing(self, instances: Sequence[Instance], machine: Machine) -> list[Missing]:
        """The wheel and the model's file; the tiny one would be made here."""
        found, ours = missing_at_urls(instances), to_start(instances)
        if ours:
            found += missing_modules(self.python, ("xllamacpp",), install_command(EXTRA))
        to_be_made = set() if tiny_path().exists() else {str(tiny_path())}
        for path in sorted({instance.model.path for instance in ours} - to_be_made):
            found += _missing_file(Path(path).expanduser())
        return found

    def launch(self, instance: Instance, ports: Ports) -> Launch:
        """A Python that is the server."""
        if instance.url is not None:
            return attached(instance)
        if instance.ranks != 1:
            raise InputError(
                f"engine {self.name}: tp x pp is {instance.ranks}; expected 1: it has no ranks"
            )
        check_handoff(self, instance, in_files=self.handoffs)
        slots = instance.max_running or SLOTS
        context = instance.context_tokens or CONTEXT_TOKENS
        path = str(Path(instance.model.path).expanduser().absolute())
        command = [self.python, "-m", SERVER, "--model", path, "--name", instance.model.name]
        command += ["--port", str(ports.serving), "--slots", str(slots)]
        command += ["--context-tokens", str(context)]
        command += ["--threads", str(max(1, len(instance.cores)))]
        if instance.cores:
            command += ["--cores", ",".join(map(str, instance.cores))]
        if instance.handoff is not None and instance.handoff.folder is not None:
            command += ["--slot-folder", str(instance.handoff.folder.absolute())]
        return Launch(local_url(ports.serving), (*command, *instance.flags))

    def reset_cache(self, running: Running) -> CacheState:
        """Starts it anew."""
        if not running.is_ours:
            return CacheState(
                False, "it was not started here, and only a restart empties its cache"
            )
        running.restart()
        return CacheState(True, "restarted")


def _missing_file(path: Path) -> list[Missing]:
    try:
        with open(path, "rb") as file:
            is_gguf = file.read(len(_MAGIC)) == _MAGIC
    except OSError as error:
        return [Missing(f"the model {path} ({error.strerror})", "give a GGUF file")]
    return [] if is_gguf else [Missing(f"GGUF in {path}", "give a GGUF file")]
