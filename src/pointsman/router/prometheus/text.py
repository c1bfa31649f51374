"""Writes Prometheus' text format, version 0.0.4.

Source of the grammar: the page "Exposition formats" of Prometheus' documentation.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

CONTENT_TYPE = b"text/plain; version=0.0.4; charset=utf-8"

Labels = Mapping[str, str]
Samples = Iterable[tuple[Labels, float | None]]


class Histogram:
    """Counts of values by upper bound, the bound included, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """Of ascending bounds; one more count is for what is above all of them."""
        assert list(bounds) == sorted(set(bounds)), "bounds ascend"
        self.bounds = list(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


def counter(name: str, meaning: str, samples: Samples) -> str:
    """A family of counters, whose names end in ``_total``; what is None is left out."""
    assert name.endswith("_total"), name
    return _family(name, "counter", meaning, _lines(name, samples))


def gauge(name: str, meaning: str, samples: Samples) -> str:
    """A family of gauges; what is None is left out."""
    return _family(name, "gauge", meaning, _lines(name, samples))


def histogram(
    name: str, meaning: str, histograms: Iterable[tuple[Labels, Histogram]], per_unit: float = 1.0
) -> str:
    """A family of histograms; values are divided by ``per_unit``: 1000 for ms told in seconds."""
    lines: list[str] = []
    for labels, values in histograms:
        bounds = [*(number(bound / per_unit) for bound in values.bounds), "+Inf"]
        for bound, count in zip(bounds, accumulate(values.counts), strict=True):
            lines.append(_line(f"{name}_bucket", {**labels, "le": bound}, count))
        lines.append(_line(f"{name}_sum", labels, values.total / per_unit))
        lines.append(_line(f"{name}_count", labels, sum(values.counts)))
    return _family(name, "histogram", meaning, lines)


def number(value: float) -> str:
    """A value as the format spells it."""
    if isinstance(value, int):
        return str(int(value))
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"


def _family(name: str, kind: str, meaning: str, lines: Sequence[str]) -> str:
    """The family; nothing at all where it has no sample."""
    if not lines:
        return ""
    said = meaning.replace("\\", r"\\").replace("\n", r"\n")
    return f"# HELP {name} {said}\n# TYPE {name} {kind}\n{''.join(lines)}"


def _lines(name: str, samples: Samples) -> list[str]:
    return [_line(name, labels, value) for labels, value in samples if value is not None]


def _line(name: str, labels: Labels, value: float) -> str:
    if not labels:
        return f"{name} {number(value)}\n"
    pairs = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"{name}{{{pairs}}} {number(value)}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
