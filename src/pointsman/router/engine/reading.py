"""What an engine said of itself at one instant, whichever engine it is."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from pointsman.core.metrics_page import Sample, samples_of
from pointsman.router.engine.names import ENGINES, WANTED, EngineNames, names_in


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


def reading_of(text: str) -> EngineReading:
    """Read a page of metrics. Raises InputError where it is none; an unknown engine is unknown."""
    samples: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples_of(text, WANTED):
        samples[sample.name].append(sample)
    names = _engine_of(frozenset(samples))
    if names is None:
        return EngineReading()
    told = _Told(dict(samples), names)
    return EngineReading(
        engine=names.engine,
        waiting_requests=told.sum("waiting_requests"),
        running_requests=told.sum("running_requests"),
        kv_use=told.largest_fraction("kv_use"),
        prefix_cache_queries=told.sum("prefix_cache_queries"),
        prefix_cache_hits=told.sum("prefix_cache_hits"),
        cached_tokens=told.sum("cached_tokens"),
        prompt_tokens=told.sum("prompt_tokens"),
        generated_tokens=told.sum("generated_tokens"),
        preemptions=told.sum("preemptions"),
        kv_blocks=told.sum("kv_blocks"),
        block_tokens=told.common("block_tokens"),
    )


def _engine_of(present: frozenset[str]) -> EngineNames | None:
    """The engine most of whose names are there."""
    best = max(ENGINES, key=lambda engine: len(names_in(engine) & present))
    return best if names_in(best) & present else None


@dataclass(frozen=True, slots=True)
class _Told:
    """The samples of a page by name, read as one engine means them."""

    samples: dict[str, list[Sample]]
    names: EngineNames

    def sum(self, quantity: str) -> int | None:
        """All engines' counts together."""
        values = self._values(quantity)
        return None if values is None else round(sum(values))

    def common(self, quantity: str) -> int | None:
        """The count that all engines have; None where they differ."""
        values = self._values(quantity)
        return round(values[0]) if values and len(set(values)) == 1 else None

    def largest_fraction(self, quantity: str) -> float | None:
        """That of the fullest engine; None where one is outside of 0..1."""
        values = self._values(quantity)
        return max(values) if values and max(values) <= 1 else None

    def _values(self, quantity: str) -> list[float] | None:
        """A value an engine and name; None where nothing is told or any of it is no amount."""
        series = self._series(quantity)
        if series is None:
            return None
        values = [value for name in series for value in _engines(name, self.names.mirrored)]
        return values if all(math.isfinite(value) and value >= 0 for value in values) else None

    def _series(self, quantity: str) -> list[list[Sample]] | None:
        """The samples of the first way that is whole, a list a name."""
        for way in self.names.told.get(quantity, ()):
            if all(name in self.samples for name in way.names):
                return [_totals(self.samples[name], way.total_without) for name in way.names]
        for place in self.names.in_labels.get(quantity, ()):
            if place.name in self.samples:
                return [[_in_label(sample, place.label) for sample in self.samples[place.name]]]
        return None


def _totals(samples: list[Sample], label: str | None) -> list[Sample]:
    """Without the parts where there is a total too."""
    totals = [sample for sample in samples if label is None or not sample.labels.get(label)]
    return totals or samples


def _in_label(sample: Sample, label: str) -> Sample:
    """The number in a label as a value, NaN where it is none."""
    text = sample.labels.get(label, "")
    return Sample(sample.name, sample.labels, int(text) if text.isdecimal() else math.nan)


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
