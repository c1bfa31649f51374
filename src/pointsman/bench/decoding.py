"""A TOML file as typed values, or one clear error: which field, what came, what was wanted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec

from pointsman.core.errors import InputError, missing_field, unknown_name, wrong_value
from pointsman.core.files import read_file
from pointsman.costs.fields import toml_table

S = TypeVar("S", bound=msgspec.Struct)
_MISSING = re.compile(r"Object missing required field `(?P<name>\w+)`")
_EXPECTED = re.compile(r"Expected (?P<wanted>.*?)(?:, got .*)?")
_TYPES = {
    "int": "an integer",
    "float": "a number",
    "str": "a text",
    "bool": "true or false",
    "object": "a table",
    "array": "a list",
}


def decoded(path: Path, kind: type[S]) -> S:
    """The file as ``kind``, a tree of structs.

    Raises InputError for a key that is missing, unknown (with the nearest one), or wrong;
    MachineError where the file cannot be read.
    """
    table = toml_table(read_file(path), str(path))
    _check_keys(table, kind, str(path))
    try:
        return msgspec.convert(table, kind)
    except msgspec.ValidationError as error:
        raise _in_our_words(str(error), table, path) from None


def _check_keys(table: dict[str, Any], kind: type[msgspec.Struct], where: str) -> None:
    known = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for name, value in table.items():
        if name not in known:
            raise unknown_name(where, "key", name, known)
        inner = _struct_in(known[name])
        if inner is None:
            continue
        if isinstance(value, dict):
            _check_keys(value, inner, f"{where}: {name}")
        for number, each in enumerate(value if isinstance(value, list) else ()):
            if isinstance(each, dict):
                _check_keys(each, inner, f"{where}: {name}[{number}]")


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    """The struct that a field is, or that it is a list of."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind
    found = (_struct_in(inner) for inner in get_args(kind))
    return next((one for one in found if one is not None), None)


def _in_our_words(message: str, table: dict[str, Any], path: Path) -> InputError:
    """The library's ``Expected `int`, got `str` - at `$.groups[0].tp``` as an error of ours."""
    reason, _, place = message.partition(" - at ")
    place = place.strip("`").removeprefix("$").removeprefix(".")
    missing = _MISSING.fullmatch(reason)
    if missing:
        return missing_field(_joined(path, place), missing["name"], "one")
    expected = _EXPECTED.fullmatch(reason)
    if not expected:
        return InputError(f"{_joined(path, place)}: {reason}")
    outer, _, name = place.rpartition(".")
    wanted = re.sub(r"`([^`]*)`", _in_words, expected["wanted"])
    return wrong_value(_joined(path, outer), name, _value_at(table, place), wanted)


def _in_words(types: re.Match[str]) -> str:
    """``int | null`` in words; a key that may be left out is none in TOML, which has no null."""
    names = [name for name in types[1].split(" | ") if name != "null"]
    return " or ".join(_TYPES.get(name, name) for name in names)


def _joined(path: Path, place: str) -> str:
    return f"{path}: {place}" if place else str(path)


def _value_at(table: Any, place: str) -> Any:
    for part in re.findall(r"\w+", place):
        table = table[int(part)] if isinstance(table, list) else table[part]
    return table
