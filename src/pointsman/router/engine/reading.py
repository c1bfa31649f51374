"""What an engine said of itself at one instant, whichever engine it is."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from pointsman.router.engine.names import ENGINES, WANTED, EngineNames, names_in
from pointsman.router.prometheus.samples import Sample, samples_of


@dataclass(frozen=True, slots=True)
class EngineReading:
    """An engine's own values; None is what it did not tell, which is never taken for 0.

    Of several data-parallel engines behind one address, counts are sums and ``kv_use`` is that of
    the fullest. Counters run from the engine's start.
    """

    engine: str | None = None  # "vllm", "sglang", "llama.cpp"
    waiting_requests: int | None = None
    running_requests: int | None = None
    kv_use: float | None = None  # 0..1
    prefix_cache_queries: int | None = None  # in the engine's unit, tokens or blocks
    prefix_cache_hits: int | None = None  # in the same unit
    cached_tokens: int | None = None  # prompt tokens taken from a cache
    prompt_tokens: int | None = None  # with the cached ones
    generated_tokens: int | None = None
    preemptions: int | None = None
    kv_blocks: int | None = None  # that there are
    block_tokens: int | None = None

    @property
    def hit_fraction(self) -> float | None:
        """The part of the prompts that came from a cache, since the engine's start."""
        fraction = _fraction(self.prefix_cache_hits, self.prefix_cache_queries)
        return _fraction(self.cached_tokens, self.prompt_tokens) if fraction is None else fraction


def reading_of(text: str) -> EngineReading:
    """Read a page of metrics. Raises InputError where it is none; an unknown engine is unknown."""
    samples: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples_of(text, WANTED):
        samples[sample.name].append(sample)
    names = _engine_of(frozenset(samples))
    if names is None:
        return EngineReading()
    return EngineReading(
        engine=names.engine,
        waiting_requests=_count(samples, names, "waiting_requests"),
        running_requests=_count(samples, names, "running_requests"),
        kv_use=_kv_use(samples, names),
        prefix_cache_queries=_count(samples, names, "prefix_cache_queries"),
        prefix_cache_hits=_count(samples, names, "prefix_cache_hits"),
        cached_tokens=_count(samples, names, "cached_tokens"),
        prompt_tokens=_count(samples, names, "prompt_tokens"),
        generated_tokens=_count(samples, names, "generated_tokens"),
        preemptions=_count(samples, names, "preemptions"),
        kv_blocks=_sum(_in_labels(samples, names, "kv_blocks")),
        block_tokens=_common(_in_labels(samples, names, "block_tokens")),
    )


def _engine_of(present: frozenset[str]) -> EngineNames | None:
    """The engine most of whose names are there."""
    best = max(ENGINES, key=lambda engine: len(names_in(engine) & present))
    return best if names_in(best) & present else None


def _told(
    samples: dict[str, list[Sample]], names: EngineNames, quantity: str
) -> list[list[Sample]] | None:
    """The samples of the first way that is whole, a list a name."""
    for way in names.told.get(quantity, ()):
        if all(name in samples for name in way.names):
            return [_without_parts(samples[name]) for name in way.names]
    return None


def _without_parts(samples: list[Sample]) -> list[Sample]:
    """SGLang tells a total, whose ``priority`` is empty, beside the parts that add up to it.

    Source: sgl-project/sglang with --enable-priority-scheduling.
    """
    totals = [sample for sample in samples if not sample.labels.get("priority")]
    return totals or samples


def _count(samples: dict[str, list[Sample]], names: EngineNames, quantity: str) -> int | None:
    told = _told(samples, names, quantity)
    if told is None:
        return None
    values = [value for series in told for value in _engines(series, names.mirrored)]
    if not all(math.isfinite(value) and value >= 0 for value in values):
        return None
    return round(sum(values))


def _engines(samples: list[Sample], mirrored: frozenset[str]) -> Iterable[float]:
    """A value for each series, ranks of one engine taken together."""
    largest: dict[frozenset[tuple[str, str]], float] = {}
    for sample in samples:
        key = frozenset(pair for pair in sample.labels.items() if pair[0] not in mirrored)
        value = largest.get(key)
        # A NaN is taken and stays: what one rank does not know is not known.
        if value is None or math.isnan(sample.value) or sample.value > value:
            largest[key] = sample.value
    return largest.values()


def _kv_use(samples: dict[str, list[Sample]], names: EngineNames) -> float | None:
    told = _told(samples, names, "kv_use")
    if told is None:
        return None
    values = [sample.value for series in told for sample in series]
    return max(values) if all(0 <= value <= 1 for value in values) else None


def _in_labels(
    samples: dict[str, list[Sample]], names: EngineNames, quantity: str
) -> list[int] | None:
    """An engine's number each, from the first label that is there; None where one is no number."""
    for place in names.in_labels.get(quantity, ()):
        found = samples.get(place.name, [])
        texts = [sample.labels.get(place.label, "") for sample in found]
        if any(texts):
            if not all(text.isdecimal() for text in texts):
                return None
            numbers = [
                Sample(sample.name, sample.labels, int(text))
                for sample, text in zip(found, texts, strict=True)
            ]
            return [int(number) for number in _engines(numbers, names.mirrored)]
    return None


def _sum(numbers: list[int] | None) -> int | None:
    return None if numbers is None else sum(numbers)


def _common(numbers: list[int] | None) -> int | None:
    return numbers[0] if numbers is not None and len(set(numbers)) == 1 else None


def _fraction(part: int | None, whole: int | None) -> float | None:
    return part / whole if part is not None and whole else None
