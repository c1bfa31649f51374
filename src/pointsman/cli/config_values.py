"""A value of a configuration file becomes what the flag of the same name would have given."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pointsman.core.errors import InputError, wrong_value
from pointsman.costs.fields import FLAG, TEXT, Wanted

_INTEGER = Wanted("an integer", lambda v: isinstance(v, int) and not isinstance(v, bool))
_NUMBER = Wanted("a number", lambda v: isinstance(v, int | float) and not isinstance(v, bool))
_TEXTS = Wanted("a list of texts", lambda v: isinstance(v, list) and all(map(TEXT.holds, v)))
_WORD = Wanted("a text or a number", lambda v: TEXT.holds(v) or _NUMBER.holds(v))


def value_of(action: argparse.Action, value: object, place: tuple[str, str], path: Path) -> Any:
    """The value as the flag would give it. Raises InputError for what the flag would not take."""
    wanted = _wanted(action)
    wanted.check(*place, value)
    if action.choices is not None and value not in action.choices:
        raise wrong_value(*place, value, f"one of {', '.join(map(str, action.choices))}")
    if isinstance(value, str):
        return _text(action, value, place, path)
    if action.type is float and isinstance(value, int):
        return float(value)
    return _text(action, str(value), place, path) if wanted is _WORD else value


def _text(action: argparse.Action, value: str, place: tuple[str, str], path: Path) -> Any:
    if action.type is Path:
        return path.parent / value
    if action.type is None:
        file, colon, rest = value.partition(":")
        return f"{path.parent / file}{colon}{rest}" if file.endswith(".py") else value
    assert callable(action.type)
    try:
        return action.type(value)
    except argparse.ArgumentTypeError as error:
        raise InputError(f"{place[0]}: {place[1]}: {error}") from None


def _wanted(action: argparse.Action) -> Wanted:
    if action.nargs == 0:
        return FLAG
    if isinstance(action, argparse._AppendAction):
        return _TEXTS
    if action.type is int:
        return _INTEGER
    if action.type is float:
        return _NUMBER
    return TEXT if action.type in (None, Path) else _WORD
