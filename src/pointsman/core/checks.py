"""Numbers from outside that are what they have to be, or one clear error."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from pointsman.core.errors import wrong_value

MOST_INT32 = 2**31 - 1


def check_integer(where: str, name: str, value: Any, least: int, most: int = MOST_INT32) -> None:
    """Refuse what is no integer in least..most; True and 2.0 are none."""
    if (
        isinstance(value, bool)
        or not isinstance(value, Integral)
        or not least <= int(value) <= most
    ):
        wanted = (
            f"an integer >= {least}" if most == MOST_INT32 else f"an integer in {least}..{most}"
        )
        raise wrong_value(where, name, value, wanted)


def check_number(where: str, name: str, value: Any, above: float | None = None) -> None:
    """Refuse what is no finite number >= 0, or > ``above``."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0.0:
        raise wrong_value(where, name, value, "a finite number >= 0")
    if above is not None and value <= above:
        raise wrong_value(where, name, value, f"a number > {above:g}")
