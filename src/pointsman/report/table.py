"""Results as text for a terminal or a file; plain, so that both get the same."""

from __future__ import annotations

import csv
import io
import math
import textwrap
import unicodedata
from collections.abc import Iterable, Sequence

PROSE_WIDTH = 100
SHA256_DIGITS = 12
_GAP = "  "
_LEAST_FIXED = 1e-6  # smaller figures have an exponent


def text_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    left_columns: int = 1,
    groups: Sequence[tuple[str, int]] = (),
) -> str:
    """Columns under headings.

    ``groups`` are headings over the headings, each with the number of its columns; together they
    cover all columns.
    """
    return text_columns([headings, *rows], left_columns, groups)


def text_columns(
    rows: Iterable[Sequence[str]],
    left_columns: int = 1,
    groups: Sequence[tuple[str, int]] = (),
) -> str:
    """Columns as wide as their widest cell, the first ones to the left, the others to the right.

    No cell is ever cut.
    """
    lines = [[_printable(cell) for cell in row] for row in rows]
    widths = [max(map(cell_width, column)) for column in zip(*lines, strict=True)]
    _widen(widths, groups)
    text = [_group_line(widths, groups)] if groups else []
    text += [_line(line, widths, left_columns) for line in lines]
    return "".join(f"{line.rstrip()}\n" for line in text)


def _line(cells: Sequence[str], widths: Sequence[int], left_columns: int) -> str:
    padded = []
    for index, (text, width) in enumerate(zip(cells, widths, strict=True)):
        pad = " " * (width - cell_width(text))
        padded.append(text + pad if index < left_columns else pad + text)
    return _GAP.join(padded)


def cell_width(text: str) -> int:
    """Columns of a terminal that a text takes: two for a wide character, none for an accent."""
    return sum(map(_character_width, text))


def _character_width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _printable(text: str) -> str:
    """A cell on one line without control characters, whoever wrote it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _widen(widths: list[int], groups: Sequence[tuple[str, int]]) -> None:
    """Make room for the headings of groups that are wider than their columns."""
    first = 0
    for text, columns in groups:
        missing = cell_width(text) - _span(widths, first, columns)
        widths[first] += max(0, missing)
        first += columns


def _group_line(widths: Sequence[int], groups: Sequence[tuple[str, int]]) -> str:
    cells = []
    first = 0
    for text, columns in groups:
        cells.append(text.center(_span(widths, first, columns)))
        first += columns
    return _GAP.join(cells)


def _span(widths: Sequence[int], first: int, columns: int) -> int:
    return sum(widths[first : first + columns]) + len(_GAP) * (columns - 1)


def csv_text(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Comma-separated values with a heading line."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows(rows)
    return text.getvalue()


def wrapped(text: str) -> str:
    """A sentence or a list as lines for reading; no word is cut."""
    return textwrap.fill(text, PROSE_WIDTH, break_long_words=False, break_on_hyphens=False) + "\n"


def number(value: float, digits: int = 3) -> str:
    """A figure of a table: so many significant digits, but none before the point is lost.

    Thousands are set apart; a figure that has fewer digits shows no zeros in their place:
    1,607 and 138 and 3.40 and 0.05 and 5.
    """
    if isinstance(value, int):
        return f"{value:,}"
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) < _LEAST_FIXED:
        return f"{value:.{digits}g}"
    rounded = float(f"{value:.{digits - 1}e}")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    text = f"{value:,.{decimals}f}"
    exact = "." in text and float(text.replace(",", "")) == value
    return text.rstrip("0").rstrip(".") if exact else text


def percent(value: float | None) -> str:
    """A fraction as a percentage; a dash where there is none."""
    return "-" if value is None else f"{value:.1%}"


def cell(name: str, value: object, digits: int = 3) -> str:
    """The value that a document has under ``name``, as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number(value, digits)
    text = str(value)
    return text[:SHA256_DIGITS] if name.endswith("sha256") else text
