"""What is not there, with what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Missing:
    """One thing that a run needs and that is not there."""

    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.what}: {self.fix}"


def listed(missing: Sequence[Missing]) -> str:
    """All of them, one a line; a fix stands once, under all that it mends."""
    things: dict[str, str] = {}
    for one in missing:
        things[one.fix] = things.get(one.fix, "") + f"  {one.what}\n"
    return "".join(f"{what}    -> {fix}\n" for fix, what in things.items())
