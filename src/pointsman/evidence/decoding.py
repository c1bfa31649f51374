"""Our own files, decoded; what is wrong with one is said in our words, with the place."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pointsman.core.errors import InputError, shown
from pointsman.core.files import read_file
from pointsman.evidence.envelope import Envelope

OBJECT_WANTED = "a JSON object of evidence, as `pointsman evidence schema` describes it"
TOP = "the top of the file"


@dataclass(frozen=True, slots=True)
class Problem:
    """What is wrong: which field, where it was looked for, what was found and wanted."""

    field: str
    place: str
    text: str


def read_object(path: Path, wanted: str = OBJECT_WANTED) -> dict[str, Any]:
    """The JSON object of a file. Raises InputError, naming what is ``wanted``, for any other."""
    try:
        document = msgspec.json.decode(read_file(path))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}; expected {wanted}") from None
    if not isinstance(document, dict):
        raise InputError(f"{path}: no JSON object; expected {wanted}")
    return document


def decode(document: dict[str, Any]) -> Envelope | Problem:
    """A typed envelope, or the first thing that is wrong with it."""
    try:
        envelope: Envelope = msgspec.convert(document, Envelope)
    except msgspec.ValidationError as error:
        return _problem(str(error), document)
    return envelope


def read_envelope(path: Path) -> Envelope:
    """One of our files. Raises InputError for whatever is none."""
    envelope = decode(read_object(path))
    if isinstance(envelope, Problem):
        raise InputError(f"{path}: {envelope.text}")
    return envelope


def _problem(message: str, document: dict[str, Any]) -> Problem:
    """The library's words, ``Object missing required field `x` - at `$.a.b```, as a problem."""
    reason, _, at = message.partition(" - at ")
    place = at.strip("`").removeprefix("$").removeprefix(".")
    where = place or TOP
    named = re.search(r"field `([^`]*)`", reason)
    if named and reason.startswith("Object missing"):
        return Problem(named[1], where, f"{named[1]} is missing; looked for in {where}")
    if named and reason.startswith("Object contains unknown"):
        near = difflib.get_close_matches(named[1], _known_names(), n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return Problem(named[1], where, f"{named[1]} in {where} is unknown{hint}")
    field = place.rpartition(".")[2] or TOP
    found = _found(document, place)
    return Problem(field, where, f"{where} is {shown(found)}: {reason}" if place else reason)


def _found(document: Any, place: str) -> Any:
    """What stands at ``a.b[2].c``; the document itself where the library names no such place."""
    value = document
    for key, index in re.findall(r"([^.\[\]]+)|\[(\d+)\]", place):
        try:
            value = value[int(index)] if index else value[key]
        except (KeyError, IndexError, TypeError):
            return value
    return value


def _known_names() -> list[str]:
    definitions = msgspec.json.schema(Envelope)["$defs"].values()
    return sorted({name for each in definitions for name in each.get("properties", ())})
