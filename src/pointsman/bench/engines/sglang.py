"""SGLang: ``python -m sglang.launch_server``. Its command lines and HTTP are tested on a stand-in;
SGLang itself was not run.

Source: sgl-project/sglang, python/sglang/srt/server_args.py and entrypoints/http_server.py of
0.5.23: /health is 503 while it starts and generates a token then, /flush_cache is 400 while
requests run, /server_info (before /get_server_info) has ``version``; docs/advanced_features/
pd_disaggregation for prefill and decode.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from pointsman.bench.engines.attached import attached, missing_at_urls, to_start
from pointsman.bench.engines.http_calls import call, is_ok, said_at
from pointsman.bench.engines.machine import (
    Machine,
    installed_version,
    missing_modules,
)
from pointsman.bench.engines.protocol import (
    CacheState,
    Instance,
    Launch,
    Ports,
    check_handoff,
    local_url,
    missing_models,
)
from pointsman.bench.engines.running import Running
from pointsman.bench.missing import Missing
from pointsman.core.errors import MachineError

_OFFLINE = (("HF_HUB_OFFLINE", "1"), ("TRANSFORMERS_OFFLINE", "1"))
_MODULES = {"nixl": "nixl", "mooncake": "mooncake"}  # what a transfer imports


@dataclass(frozen=True, slots=True)
class Sglang:
    """``python``: one that has SGLang. ``transfer``: what moves caches between GPUs."""

    python: str = sys.executable
    transfer: str = "nixl"
    name: str = "sglang"
    signals: str | None = "sglang"
    handoffs: tuple[str, ...] = ("sglang",)
    ready_path: str = "/health"
    ready_deadline_s: float = 600.0

    def version(self) -> str | None:
        """Of the package."""
        return installed_version(self.python, "sglang")

    def version_of(self, url: str) -> str | None:
        """As ``/server_info`` says, or by its name of before."""
        found = said_at(url, "/server_info", "version")
        return found or said_at(url, "/get_server_info", "version")

    def missing(self, instances: Sequence[Instance], machine: Machine) -> list[Missing]:
        """The package, what its hand-off imports, and models."""
        found, ours = missing_at_urls(instances), to_start(instances)
        if ours:
            found += self._missing_package(any(each.handoff is not None for each in ours))
        return found + missing_models([each.model for each in ours], machine)

    def _missing_package(self, is_apart: bool) -> list[Missing]:
        fix = "pip install sglang in an environment of its own, and give its python"
        found = missing_modules(self.python, ("sglang",), fix)
        module = _MODULES.get(self.transfer)
        if found or module is None or not is_apart:
            return found
        return missing_modules(self.python, (module,), f"install what {self.transfer} needs there")

    def launch(self, instance: Instance, ports: Ports) -> Launch:
        """Its launcher; a prefill replica has a port where decode replicas ask for its caches."""
        if instance.url is not None:
            return attached(instance)
        check_handoff(self, instance)
        model = instance.model
        command = [self.python, "-m", "sglang.launch_server", "--model-path", model.path]
        command += ["--served-model-name", model.name]
        command += ["--host", "127.0.0.1", "--port", str(ports.serving)]
        command += ["--tp-size", str(instance.tp), "--pp-size", str(instance.pp)]
        named = (
            ("--revision", model.revision),
            ("--tokenizer-path", model.tokenizer),
            ("--dtype", model.dtype),
            ("--context-length", instance.context_tokens),
            ("--max-running-requests", instance.max_running),
        )
        command += [word for flag, value in named if value for word in (flag, str(value))]
        command += ["--enable-metrics", "--enable-cache-report"]
        is_prefill = instance.role == "prefill"
        if instance.role != "none":
            command += ["--disaggregation-mode", instance.role]
            command += ["--disaggregation-transfer-backend", self.transfer]
        if is_prefill:
            command += ["--disaggregation-bootstrap-port", str(ports.meeting)]
        gpus = (("CUDA_VISIBLE_DEVICES", ",".join(instance.gpus)),) if instance.gpus else ()
        return Launch(
            local_url(ports.serving),
            (*command, *instance.flags),
            (*gpus, *_OFFLINE),
            ports.meeting if is_prefill else None,
        )

    def reset_cache(self, running: Running) -> CacheState:
        """``/flush_cache``."""
        answer = call(running.url, "/flush_cache", "POST")
        if not is_ok(answer):
            raise MachineError(
                f"{running.url}: /flush_cache says {answer.status}"
                f" {answer.body[:200].decode(errors='replace').strip()}; let it be idle"
            )
        return CacheState(True, "/flush_cache")
