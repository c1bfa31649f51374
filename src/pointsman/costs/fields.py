"""Named values from a file become checked values, or one clear error."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from pointsman.core.checks import MOST_INT32
from pointsman.core.errors import InputError, missing_field, unknown_name, wrong_value


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a field may be: in words for a message, and as a test.

    A number is also in ``least``..``most``, or 0 where the test lets it be: limits that only a slip
    exceeds, so that they are named only then.
    """

    words: str
    holds: Callable[[Any], bool]
    required: bool = True
    least: float = -math.inf
    most: float = math.inf

    def or_absent(self) -> Wanted:
        """The same, of a field that may be left out."""
        return replace(self, required=False)

    def or_null(self) -> Wanted:
        """The same, of a field that may be null."""
        return replace(
            self,
            words=f"{self.words}, or null",
            holds=lambda value: value is None or self.holds(value),
        )

    def check(self, where: str, name: str, value: object) -> None:
        """Raise InputError where the value is not what is wanted."""
        if not self.holds(value):
            raise wrong_value(where, name, value, self.words)
        if isinstance(value, int | float) and value:
            if value > self.most:
                raise wrong_value(where, name, value, f"{self.words}, at most {self.most:.10g}")
            if value < self.least:
                raise wrong_value(where, name, value, f"{self.words}, at least {self.least:.10g}")


Fields = Mapping[str, Wanted]

# Amounts and rates beyond these have sums and ratios that no float holds.
LEAST_AMOUNT, MOST_AMOUNT = 1e-18, 1e18

WHOLE = Wanted(
    "an integer >= 1", lambda value: _is_whole(value) and value >= 1, most=float(MOST_INT32)
)
COUNT = Wanted("an integer >= 0", lambda value: _is_whole(value) and value >= 0, most=MOST_AMOUNT)
POSITIVE = Wanted(
    "a finite number > 0",
    lambda value: _is_finite(value) and value > 0,
    least=LEAST_AMOUNT,
    most=MOST_AMOUNT,
)
AMOUNT = Wanted(
    "a finite number >= 0", lambda value: _is_finite(value) and value >= 0, most=MOST_AMOUNT
)
FLAG = Wanted("true or false", lambda value: isinstance(value, bool))
TEXT = Wanted("a text that is not empty", lambda value: isinstance(value, str) and value != "")
GROUP = Wanted("a group of fields", lambda value: isinstance(value, dict))


def toml_table(content: bytes, where: str) -> dict[str, Any]:
    """The top level of a TOML file; InputError where it is none."""
    try:
        values: dict[str, Any] = msgspec.toml.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise InputError(f"{where}: not TOML: {error}") from None
    return values


def named_tables(content: bytes, fields: Fields, where: str) -> dict[str, dict[str, Any]]:
    """The tables of a TOML file by name, each with all of ``fields`` and no other."""
    return {
        name: check_fields(values, fields, f"{where}: [{name}]")
        for name, values in toml_table(content, where).items()
    }


def check_fields(values: object, fields: Fields, where: str) -> dict[str, Any]:
    """All of ``fields`` and no other, each as it is wanted."""
    if not isinstance(values, dict):
        raise InputError(f"{where}: expected a group with the fields {', '.join(fields)}")
    for name in values:
        if name not in fields:
            raise unknown_name(where, "field", name, fields)
    for name, wanted in fields.items():
        if name not in values:
            if wanted.required:
                raise missing_field(where, name, wanted.words)
        else:
            wanted.check(where, name, values[name])
    return values


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_finite(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        return False
