"""How a recorded engine was set: the part of ``meta.json`` that its scheduler goes by."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from pointsman.core.errors import InputError, wrong_value
from pointsman.core.files import read_file

T = TypeVar("T")
DEFAULT_BLOCK_SIZE = 16
_ASYNC_SINCE = (0, 14)  # asynchronous scheduling is the default (release notes of vLLM 0.14.0)


class _EngineArguments(msgspec.Struct, frozen=True):
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    tensor_parallel_size: int | None = None
    data_parallel_size: int | None = None
    enable_expert_parallel: bool | None = None
    async_scheduling: bool | None = None


class _KvCache(msgspec.Struct, frozen=True):
    num_gpu_blocks: int | None = None
    block_size: int | None = None
    enable_prefix_caching: bool | None = None


class _Scheduler(msgspec.Struct, frozen=True):
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    scheduler_reserve_full_isl: bool | None = None
    async_scheduling: bool | None = None


class _Parallel(msgspec.Struct, frozen=True):
    is_moe_model: bool | None = None


class _Resolved(msgspec.Struct, frozen=True):
    scheduler_config: _Scheduler = _Scheduler()
    parallel_config: _Parallel = _Parallel()


class _Meta(msgspec.Struct, frozen=True):
    engine_kwargs: _EngineArguments
    model: str | None = None
    vllm_version: str | None = None
    kv_cache: _KvCache | None = None
    resolved_config: _Resolved | None = None


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """One engine as it was recorded; ``engine_cores`` batch each for itself (data parallelism).

    ``kv_blocks`` are those that requests can have, of each core; None where that is not recorded,
    as for ``async_scheduling``. ``lockstep``: the cores start their iterations together.
    ``shares_late``: as of `Engine`.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    kv_blocks: int | None
    block_size: int = DEFAULT_BLOCK_SIZE
    engine_cores: int = 1
    tensor_parallel: int = 1
    prefix_caching: bool = True
    reserve_full: bool = True
    async_scheduling: bool | None = None
    lockstep: bool = False
    shares_late: bool = False
    model: str | None = None
    version: str | None = None


def read_setup(path: Path) -> EngineSetup:
    """The setup that a ``meta.json`` states.

    Raises InputError where it is missing or wrong, or leaves a limit of the batch to vLLM's
    defaults, which depend on the device and on the version.
    """
    try:
        meta = msgspec.json.decode(read_file(path), type=_Meta)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: {error}; expected how the engine was set") from None
    arguments, cache = meta.engine_kwargs, meta.kv_cache or _KvCache()
    resolved = (meta.resolved_config or _Resolved()).scheduler_config
    cores = _degree(path, "data_parallel_size", arguments)
    return EngineSetup(
        max_num_seqs=_limit(path, "max_num_seqs", arguments, resolved),
        max_num_batched_tokens=_limit(path, "max_num_batched_tokens", arguments, resolved),
        kv_blocks=_usable_blocks(path, cache.num_gpu_blocks),
        block_size=_at_least(path, "block_size", _given(cache.block_size, DEFAULT_BLOCK_SIZE), 1),
        engine_cores=cores,
        tensor_parallel=_degree(path, "tensor_parallel_size", arguments),
        prefix_caching=_given(cache.enable_prefix_caching, True),
        reserve_full=_given(resolved.scheduler_reserve_full_isl, True),
        async_scheduling=_asynchronous(meta),
        lockstep=cores > 1 and _mixes_experts(meta),
        model=meta.model,
        version=meta.vllm_version,
    )


def _asynchronous(meta: _Meta) -> bool | None:
    """What the engine resolved, what it was told, else the default: on from vLLM 0.14 on."""
    resolved = (meta.resolved_config or _Resolved()).scheduler_config.async_scheduling
    told = meta.engine_kwargs.async_scheduling
    if resolved is not None or told is not None:
        return told if resolved is None else resolved
    version = re.match(r"(\d+)\.(\d+)", meta.vllm_version or "")
    if version is None:
        return None
    return (int(version[1]), int(version[2])) >= _ASYNC_SINCE or None


def _mixes_experts(meta: _Meta) -> bool:
    resolved = (meta.resolved_config or _Resolved()).parallel_config.is_moe_model
    return bool(meta.engine_kwargs.enable_expert_parallel or resolved)


def _given(value: T | None, default: T) -> T:
    return default if value is None else value


def _at_least(path: Path, name: str, value: int, least: int) -> int:
    if value < least:
        raise wrong_value(str(path), name, value, f"an integer >= {least}")
    return value


def _degree(path: Path, name: str, arguments: _EngineArguments) -> int:
    value: int | None = getattr(arguments, name)
    return _at_least(path, name, _given(value, 1), 1)


def _limit(path: Path, name: str, arguments: _EngineArguments, resolved: _Scheduler) -> int:
    value: int | None = getattr(arguments, name)
    if value is None:
        value = getattr(resolved, name)
    if value is None:
        raise InputError(
            f"{path}: engine_kwargs.{name} is not stated; expected the value that the engine ran"
            " with, for vLLM's default depends on the device: its log says which"
        )
    return _at_least(path, f"engine_kwargs.{name}", value, 1)


def _usable_blocks(path: Path, blocks: int | None) -> int | None:
    """All but one: vLLM keeps a null block back (``vllm/v1/core/block_pool.py``)."""
    return None if blocks is None else _at_least(path, "kv_cache.num_gpu_blocks", blocks, 2) - 1
