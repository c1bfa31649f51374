"""Distributions that the generator draws lengths, counts and times from.

Each field is checked by what it means alone: a mean, a spread, a least and a most value. Draws
outside least..most are moved to the nearer of the two, so the mean of what is drawn can differ
from the one given; ``trace info`` shows the mean drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from pointsman.core.errors import InputError, missing_field, unknown_name, wrong_value
from pointsman.workload.workload import Floats

_WHERE = "distribution"


class Distribution(Protocol):
    """Numbers >= 0; which ones is settled by the random stream alone."""

    def draw(self, count: int, random: np.random.Generator) -> Floats:
        """``count`` independent draws."""
        ...


def _check(kind: str, name: str, value: float, least: float) -> None:
    if not (least <= value < math.inf):
        raise wrong_value(f"{kind} {_WHERE}", name, value, f"a number >= {least:g}")


def _check_range(kind: str, least: float, most: float) -> None:
    _check(kind, "min", least, 0.0)
    if not most >= least:
        raise wrong_value(f"{kind} {_WHERE}", "max", most, f"a number >= min, {least:g}")


@dataclass(frozen=True, slots=True)
class Constant:
    """Always ``value``."""

    value: float

    def __post_init__(self) -> None:
        _check("constant", "value", self.value, 0.0)

    def draw(self, count: int, random: np.random.Generator) -> Floats:
        """``count`` times the value; draws nothing."""
        return np.full(count, float(self.value))


@dataclass(frozen=True, slots=True)
class Uniform:
    """Evenly between ``min`` and ``max``, both included once rounded to integers."""

    min: float
    max: float

    def __post_init__(self) -> None:
        _check_range("uniform", self.min, self.max)
        _check("uniform", "max", self.max, 0.0)

    def draw(self, count: int, random: np.random.Generator) -> Floats:
        """Draws in min..max."""
        if self.min == math.floor(self.min) and self.max == math.floor(self.max):
            low, high = int(self.min), int(self.max)
            return random.integers(low, high, count, endpoint=True).astype(np.float64)
        return self.min + random.random(count) * (self.max - self.min)


@dataclass(frozen=True, slots=True)
class Normal:
    """Normal with ``mean`` and ``stdev``, moved into ``min``..``max``."""

    mean: float
    stdev: float
    min: float = 0.0
    max: float = math.inf

    def __post_init__(self) -> None:
        _check("normal", "mean", self.mean, 0.0)
        _check("normal", "stdev", self.stdev, 0.0)
        _check_range("normal", self.min, self.max)

    def draw(self, count: int, random: np.random.Generator) -> Floats:
        """Draws in min..max."""
        return np.clip(random.normal(self.mean, self.stdev, count), self.min, self.max)


@dataclass(frozen=True, slots=True)
class Lognormal:
    """The exponential of a normal with standard deviation ``sigma``, moved into ``min``..``max``.

    Give its ``mean`` or its ``median`` (before the move): median = mean * exp(-sigma^2 / 2).
    """

    sigma: float
    mean: float | None = None
    median: float | None = None
    min: float = 0.0
    max: float = math.inf

    def __post_init__(self) -> None:
        _check("lognormal", "sigma", self.sigma, 0.0)
        if (self.mean is None) == (self.median is None):
            raise InputError("lognormal distribution: expected mean or median, one of the two")
        centre = self.mean if self.median is None else self.median
        if centre is not None and not 0.0 < centre < math.inf:
            name = "mean" if self.median is None else "median"
            raise wrong_value(f"lognormal {_WHERE}", name, centre, "a number > 0")
        _check_range("lognormal", self.min, self.max)

    def draw(self, count: int, random: np.random.Generator) -> Floats:
        """Draws in min..max."""
        if self.median is not None:
            middle = math.log(self.median)
        else:
            middle = math.log(self.mean or 1.0) - self.sigma**2 / 2
        with np.errstate(over="ignore"):
            return np.clip(random.lognormal(middle, self.sigma, count), self.min, self.max)


@dataclass(frozen=True, slots=True)
class Exponential:
    """Exponential with ``mean``, moved into ``min``..``max``."""

    mean: float
    min: float = 0.0
    max: float = math.inf

    def __post_init__(self) -> None:
        _check("exponential", "mean", self.mean, 0.0)
        _check_range("exponential", self.min, self.max)

    def draw(self, count: int, random: np.random.Generator) -> Floats:
        """Draws in min..max."""
        return np.clip(random.exponential(self.mean, count), self.min, self.max)


@dataclass(frozen=True, slots=True)
class Geometric:
    """1, 2, 3, ... with ``mean`` >= 1: after each, another one with probability 1 - 1 / mean."""

    mean: float

    def __post_init__(self) -> None:
        _check("geometric", "mean", self.mean, 1.0)

    def draw(self, count: int, random: np.random.Generator) -> Floats:
        """Draws >= 1."""
        return random.geometric(1.0 / self.mean, count).astype(np.float64)


@dataclass(frozen=True, slots=True, eq=False)
class Empirical:
    """Values drawn with replacement from those of a trace's column."""

    values: Any

    def __post_init__(self) -> None:
        values = np.asarray(self.values, dtype=np.float64)
        if values.ndim != 1 or values.size == 0 or not np.all((values >= 0) & (values < np.inf)):
            raise InputError("empirical distribution: expected one or more numbers >= 0")
        object.__setattr__(self, "values", values)

    def draw(self, count: int, random: np.random.Generator) -> Floats:
        """Draws from the values."""
        drawn: Floats = self.values[random.integers(0, self.values.size, count)]
        return drawn


KINDS: Mapping[str, Callable[..., Distribution]] = MappingProxyType(
    {
        "constant": Constant,
        "uniform": Uniform,
        "normal": Normal,
        "lognormal": Lognormal,
        "exponential": Exponential,
        "geometric": Geometric,
    }
)


def distribution_of_text(text: str, where: str = _WHERE) -> Distribution:
    """Parse ``512`` (constant) or ``KIND:name=value,...`` such as ``lognormal:mean=900,sigma=1``.

    Raises InputError, beginning with ``where``, for an unknown kind, name or number.
    """
    kind, _, rest = text.partition(":")
    if not rest and kind not in KINDS:
        return Constant(_number(where, "value", text))
    if kind not in KINDS:
        raise unknown_name(where, "distribution", kind, KINDS)
    form: Any = KINDS[kind]
    known = {field.name: field for field in fields(form)}
    values: dict[str, float] = {}
    for part in filter(None, rest.split(",")):
        name, _, value = part.partition("=")
        if name not in known:
            raise unknown_name(where, f"value of {kind}", name, known)
        values[name] = _number(where, name, value)
    for name, field in known.items():
        if field.default is MISSING and name not in values:
            raise missing_field(where, f"{name} of {kind}", "a number")
    try:
        return KINDS[kind](**values)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _number(where: str, name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise wrong_value(where, name, text, "a number") from None
