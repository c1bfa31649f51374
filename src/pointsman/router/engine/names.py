"""Under which names engines tell what the router wants to know.

Data only. For every quantity the ways an engine tells it, the newest first: the first way all of
whose names are there counts, and its names are added up. So a version that shows an old name
beside the new one is read once, and a name that is gone makes the quantity unknown, never 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

VLLM_V0 = "vllm-project/vllm, vllm/engine/metrics.py"
VLLM_V1 = "vllm-project/vllm, vllm/v1/metrics/loggers.py, newest read: 0.32"
SGLANG = (
    "sgl-project/sglang, python/sglang/srt/observability/metrics_collector.py, newest read: 0.5.23"
)
SGLANG_CAPACITY = (
    "llm-d/llm-d-router, its mapping of SGLang's cache_config_info (page_size, num_pages)"
)
LLAMACPP = "ggml-org/llama.cpp, tools/server, read from a server of xllamacpp 2026.10.11549"


@dataclass(frozen=True, slots=True)
class Way:
    """Names whose values are added up, and where that is from."""

    names: tuple[str, ...]
    source: str
    # A label that is empty, or absent, on the total, beside the parts that add up to it.
    total_without: str | None = None


@dataclass(frozen=True, slots=True)
class InfoLabel:
    """A number that stands in a label of a sample."""

    name: str
    label: str
    source: str


@dataclass(frozen=True, slots=True)
class EngineNames:
    """One engine's names; a key is a field of EngineReading.

    ``mirrored``: labels of ranks that all tell the same number of one scheduler, so that the
    largest counts. Series that differ in any other label, such as vLLM's ``engine`` or SGLang's
    ``dp_rank``, are added up.
    """

    engine: str
    told: Mapping[str, tuple[Way, ...]]
    in_labels: Mapping[str, tuple[InfoLabel, ...]] = field(default_factory=dict)
    mirrored: frozenset[str] = frozenset()


VLLM = EngineNames(
    "vllm",
    {
        "waiting_requests": (Way(("vllm:num_requests_waiting",), f"{VLLM_V0}; {VLLM_V1}"),),
        "running_requests": (Way(("vllm:num_requests_running",), f"{VLLM_V0}; {VLLM_V1}"),),
        "kv_use": (
            Way(("vllm:kv_cache_usage_perc",), f"{VLLM_V1}, since 0.9.2"),
            Way(("vllm:gpu_cache_usage_perc",), f"{VLLM_V0}; {VLLM_V1}, hidden since 0.11"),
        ),
        # In tokens; in blocks in the first versions of V1: a ratio is safe, a count is not.
        "prefix_cache_queries": (
            Way(("vllm:prefix_cache_queries_total",), f"{VLLM_V1}, since 0.9.2"),
            Way(("vllm:gpu_prefix_cache_queries_total",), f"{VLLM_V1}, hidden since 0.11"),
        ),
        "prefix_cache_hits": (
            Way(("vllm:prefix_cache_hits_total",), f"{VLLM_V1}, since 0.9.2"),
            Way(("vllm:gpu_prefix_cache_hits_total",), f"{VLLM_V1}, hidden since 0.11"),
        ),
        "cached_tokens": (Way(("vllm:prompt_tokens_cached_total",), VLLM_V1),),
        "prompt_tokens": (Way(("vllm:prompt_tokens_total",), f"{VLLM_V0}; {VLLM_V1}"),),
        "generated_tokens": (Way(("vllm:generation_tokens_total",), f"{VLLM_V0}; {VLLM_V1}"),),
        "preemptions": (Way(("vllm:num_preemptions_total",), f"{VLLM_V0}; {VLLM_V1}"),),
    },
    {
        "kv_blocks": (
            InfoLabel("vllm:cache_config_info", "num_gpu_blocks", f"{VLLM_V0}; {VLLM_V1}"),
        ),
        "block_tokens": (
            InfoLabel("vllm:cache_config_info", "block_size", f"{VLLM_V0}; {VLLM_V1}"),
        ),
    },
)

SGLANG_NAMES = EngineNames(
    "sglang",
    {
        "waiting_requests": (Way(("sglang:num_queue_reqs",), SGLANG, "priority"),),
        "running_requests": (Way(("sglang:num_running_reqs",), SGLANG, "priority"),),
        "kv_use": (Way(("sglang:token_usage",), SGLANG),),
        "cached_tokens": (Way(("sglang:cached_tokens_total",), SGLANG),),
        "prompt_tokens": (Way(("sglang:prompt_tokens_total",), SGLANG),),
        "generated_tokens": (Way(("sglang:generation_tokens_total",), SGLANG),),
        "preemptions": (Way(("sglang:num_retracted_requests_total",), SGLANG),),
        "kv_blocks": (Way(("sglang:num_pages",), f"{SGLANG}, 0.5.23"),),
        "block_tokens": (Way(("sglang:page_size",), f"{SGLANG}, 0.5.23"),),
    },
    {
        "kv_blocks": (InfoLabel("sglang:cache_config_info", "num_pages", SGLANG_CAPACITY),),
        "block_tokens": (InfoLabel("sglang:cache_config_info", "page_size", SGLANG_CAPACITY),),
    },
    mirrored=frozenset(("tp_rank", "pp_rank", "moe_ep_rank")),
)

# Its prompt_tokens_total leaves the cached ones out; its use of KV stands in /slots only.
LLAMACPP_NAMES = EngineNames(
    "llama.cpp",
    {
        "waiting_requests": (Way(("llamacpp:requests_deferred",), LLAMACPP),),
        "running_requests": (Way(("llamacpp:requests_processing",), LLAMACPP),),
        "kv_use": (Way(("llamacpp:kv_cache_usage_ratio",), f"{LLAMACPP}: gone in 2025"),),
        "cached_tokens": (Way(("llamacpp:prompt_tokens_cached_total",), LLAMACPP),),
        "prompt_tokens": (
            Way(
                ("llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total"),
                LLAMACPP,
            ),
        ),
        "generated_tokens": (Way(("llamacpp:tokens_predicted_total",), LLAMACPP),),
    },
)

ENGINES = (VLLM, SGLANG_NAMES, LLAMACPP_NAMES)


def names_in(engine: EngineNames) -> frozenset[str]:
    """Every name that this engine may use for what is wanted."""
    told = {name for ways in engine.told.values() for way in ways for name in way.names}
    info = {label.name for labels in engine.in_labels.values() for label in labels}
    return frozenset(told | info)


WANTED = frozenset().union(*(names_in(engine) for engine in ENGINES))
