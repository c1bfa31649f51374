"""What can go wrong, by how a caller would react.

    PointsmanError
    ├── InputError (also ValueError)   what was given is wrong: mend it and call again
    └── MachineError (also OSError)    the machine refused: a port, a file, a process

A message says where, what came, what was wanted, and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_SHOWN_CHARACTERS = 80
_LONG_CHARACTERS = 200


class PointsmanError(Exception):
    """The root of every error that Pointsman raises on purpose."""

    exit_code = 1


class InputError(PointsmanError, ValueError):
    """What the caller gave is wrong; nothing was changed or written."""

    exit_code = 2


class MachineError(PointsmanError, OSError):
    """The machine refused what was asked of it: a port, a file, a process."""

    exit_code = 1


def wrong_value(where: str, name: str, value: object, wanted: str) -> InputError:
    """The one shape of a bad value: ``where: name is value; expected wanted``."""
    return InputError(f"{where}: {name} is {shown(value)}; expected {wanted}")


def missing_field(where: str, name: str, wanted: str) -> InputError:
    """A required field that is not there."""
    return InputError(f"{where}: {name} is missing; expected {wanted}")


def unknown_name(where: str, kind: str, name: str, known: Iterable[str]) -> InputError:
    """A name outside a known set, with the nearest known one, which stands before a long list."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hints = [f"expected one of {', '.join(names)}"]
    if near:
        place = 0 if len(hints[0]) > _LONG_CHARACTERS else 1
        hints.insert(place, f"did you mean {near[0]}?")
    return InputError(f"{where}: {kind} {shown(name)} is unknown; {'; '.join(hints)}")


def shown(value: object) -> str:
    """A value as it appears in a message: its repr, cut at 80 characters."""
    text = repr(value)
    if len(text) > _SHOWN_CHARACTERS:
        return f"{text[:_SHOWN_CHARACTERS]}... ({len(text)} characters)"
    return text
