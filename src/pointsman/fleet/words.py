"""A fleet in one word: ``2xh100:prefill+2xa100-80:tp=2:decode``, as a table of ``tables.py``."""

from __future__ import annotations

import re
from typing import Any

from pointsman.core.errors import InputError, unknown_name, wrong_value
from pointsman.fleet.groups import ROLES

MOST_DIGITS = 9
SHAPES = ("tp", "pp")
EXAMPLE = "such as 4xh100, 4xh100:tp=2 or 2xh100:prefill+2xh100:decode, or FILE.toml"

# A file has a slash or a suffix; what begins with a count and a device is none but for .toml.
_FILE = re.compile(r".*\.toml|.*/.*|(?![0-9]+(x|:|$)).*\.[A-Za-z]\w*", re.ASCII | re.DOTALL)


def names_a_file(text: str) -> bool:
    """Whether a fleet is described by a file of that path, and not by the word itself."""
    return _FILE.fullmatch(text) is not None


def groups_of_words(text: str) -> list[dict[str, Any]]:
    """The groups of ``COUNT[xDEVICE][:tp=N][:pp=N][:prefill|:decode]``, joined by ``+``.

    Raises InputError for whatever else stands there.
    """
    return [_group(text, word) for word in text.split("+")]


def _group(text: str, word: str) -> dict[str, Any]:
    where = f"--fleet {text}"
    head, *settings = word.split(":")
    count, cross, device = head.partition("x")
    if not _is_whole(count) or bool(cross) != bool(device):
        raise InputError(f"{where}: {word!r} is no group of replicas; expected {EXAMPLE}")
    group: dict[str, Any] = {"count": int(count)}
    if device:
        group["device"] = device
    for setting in settings:
        name, value = _setting(where, setting)
        if name in group:
            raise InputError(f"{where}: {name} is given twice in {word!r}; expected it once")
        group[name] = value
    return group


def _setting(where: str, setting: str) -> tuple[str, Any]:
    name, equals, value = setting.partition("=")
    if not equals and name in ROLES:
        return "role", name
    if name not in SHAPES:
        raise unknown_name(where, "setting", name, (*SHAPES, *ROLES))
    if not _is_whole(value):
        raise wrong_value(where, name, value, f"an integer >= 1, as in {name}=2")
    return name, int(value)


def _is_whole(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS
