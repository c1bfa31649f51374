"""The shapes that GPUs can take: replicas, TP and PP inside them, prefill and decode apart."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from pointsman.core.errors import unknown_name, wrong_value

REPLICAS, TP_PP, DISAGGREGATED = "replicas", "tp_pp", "disaggregated"
KINDS = (REPLICAS, TP_PP, DISAGGREGATED)

# Up to here every count is tried; beyond it 12, 16, 24, 32, ... and the largest that there is.
EVERY_COUNT = 8

_FORM = re.compile(r"(?:(\d+)|(\d+)P(\d+)D)xTP(\d+)(?:PP(\d+))?", re.IGNORECASE)
_EXAMPLES = "a shape such as 4xTP2, 2xTP2PP2 or 1P3DxTP1"


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """So many replicas of ``tp * pp`` GPUs each; the first ``prefill`` only compute prompts."""

    replicas: int
    tp: int = 1
    pp: int = 1
    prefill: int = 0  # 0: every replica does both

    @property
    def kind(self) -> str:
        """One of ``KINDS``."""
        if self.prefill:
            return DISAGGREGATED
        return TP_PP if self.tp * self.pp > 1 else REPLICAS

    @property
    def gpus(self) -> int:
        """GPUs of all replicas."""
        return self.replicas * self.tp * self.pp

    @property
    def instance(self) -> str:
        """One replica: ``TP2`` or ``TP2PP2``."""
        return f"TP{self.tp}" + (f"PP{self.pp}" if self.pp > 1 else "")

    @property
    def label(self) -> str:
        """``4xTP2``, ``2xTP2PP2``, ``1P3DxTP1``; ``shape_named`` reads it."""
        count = str(self.replicas)
        if self.prefill:
            count = f"{self.prefill}P{self.replicas - self.prefill}D"
        return f"{count}x{self.instance}"


def shape_named(text: str) -> Shape:
    """The shape of a label. Raises InputError for a text that is none."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise wrong_value("plan", "shape", text, _EXAMPLES)
    whole, prefill, decode, tp, pp = (int(part) if part else 0 for part in found.groups())
    shape = Shape(whole or prefill + decode, tp, pp or 1, prefill)
    if min(shape.replicas, shape.tp, shape.pp) < 1 or (decode < 1) != (prefill < 1):
        raise wrong_value("plan", "shape", text, f"counts >= 1, {_EXAMPLES}")
    return shape


def shapes_of(instances: Collection[tuple[int, int]], gpus: int) -> list[Shape]:
    """All shapes of these (tp, pp) on at most so many GPUs; splits have no PP."""
    return [
        shape
        for tp, pp in instances
        for count in counts_up_to(gpus // (tp * pp))
        for shape in (Shape(count, tp, pp), *(_splits(count, tp) if pp == 1 else ()))
    ]


def instances_within(gpus: int, gpus_per_node: int, layers: int) -> list[tuple[int, int]]:
    """(tp, pp) of the powers of two that so many GPUs allow, the smallest instances first."""
    powers = [1 << k for k in range(gpus.bit_length())]
    pairs = [
        (tp, pp)
        for tp in powers
        for pp in powers
        if tp * pp <= gpus and tp <= gpus_per_node and pp <= layers
    ]
    return sorted(pairs, key=lambda pair: (pair[0] * pair[1], pair[1]))


def counts_up_to(most: int) -> list[int]:
    """Counts that are tried: all small ones, then in steps of a half and a third, and the most."""
    counts = list(range(1, min(most, EVERY_COUNT) + 1))
    step = EVERY_COUNT
    while counts and counts[-1] < most:
        counts += [count for count in (step * 3 // 2, step * 2) if count < most]
        step *= 2
        if step >= most:
            counts.append(most)
    return counts


def _splits(count: int, tp: int) -> Iterator[Shape]:
    """Of so many replicas: every number for prefill, of many replicas every eighth of them."""
    numbers = range(1, count)
    if count > EVERY_COUNT:
        numbers = range(count // EVERY_COUNT, count, count // EVERY_COUNT)
    for prefill in numbers:
        yield Shape(count, tp, 1, prefill)


def check_kinds(kinds: Collection[str]) -> None:
    """Refuse a kind that nobody knows, and none at all."""
    for kind in kinds:
        if kind not in KINDS:
            raise unknown_name("plan", "kind", kind, KINDS)
    if not kinds:
        raise wrong_value("plan", "kinds", list(kinds), f"some of {', '.join(KINDS)}")
