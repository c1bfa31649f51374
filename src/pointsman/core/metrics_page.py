"""Reads samples out of Prometheus' text format, version 0.0.4.

Only samples of wanted names are parsed: an engine's page is mostly histograms that nobody here
reads, and it is read on the event loop. Source of the grammar: the page "Exposition formats" of
Prometheus' documentation.
"""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass

from pointsman.core.errors import InputError, shown

_NAME = re.compile(r"[ \t]*([a-zA-Z_:][a-zA-Z0-9_:]*)")
# What follows a name. A label's value may hold any character, so the labels end at the last brace.
_REST = re.compile(r"[ \t]*(?:\{(.*)\})?[ \t]*([^\s_{}]+)(?:[ \t]+-?[0-9]+)?[ \t\r]*")
_LABEL = re.compile(r'[ \t]*([a-zA-Z_][a-zA-Z0-9_]*)[ \t]*=[ \t]*"((?:[^"\\]|\\.)*)"[ \t]*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")
_UNESCAPED = {"\\": "\\", '"': '"', "n": "\n"}


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: a value, perhaps NaN or infinite, of a series."""

    name: str
    labels: dict[str, str]
    value: float


def samples_of(text: str, wanted: Container[str]) -> list[Sample]:
    """The samples of the wanted names, in order. Raises InputError, naming the line."""
    found = []
    # Not splitlines: a label may hold other separators than the newline, which is escaped there.
    for number, line in enumerate(text.split("\n"), start=1):
        named = _NAME.match(line)
        if named is not None:
            if named[1] in wanted:
                found.append(_sample(line, named, number))
        elif line.strip() and not line.lstrip().startswith("#"):
            raise _wrong(number, line)
    return found


def _sample(line: str, named: re.Match[str], number: int) -> Sample:
    rest = _REST.fullmatch(line, named.end())
    if rest is None:
        raise _wrong(number, line)
    labels = _labels(rest[1] or "")
    try:
        value = float(rest[2])
    except ValueError:
        labels = None
    if labels is None:
        raise _wrong(number, line)
    return Sample(named[1], labels, value)


def _labels(text: str) -> dict[str, str] | None:
    """The labels between the braces; None where they are none."""
    labels: dict[str, str] = {}
    start = 0
    while text[start:].strip():
        found = _LABEL.match(text, start)
        if found is None:
            return None
        labels[found[1]] = _ESCAPE.sub(_unescaped, found[2])
        start = found.end()
    return labels


def _unescaped(escape: re.Match[str]) -> str:
    return _UNESCAPED.get(escape[1], escape[0])


def _wrong(number: int, line: str) -> InputError:
    return InputError(
        f"metrics line {number}: {shown(line)} is no sample; expected NAME{{LABELS}} VALUE"
    )
