"""Results as text for a terminal or a file."""

from __future__ import annotations

import csv
import io
import os
import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

_WIDTH = 160


def text_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], left_columns: int = 1
) -> str:
    """Columns, the first ones to the left, the others to the right; colour only on a terminal."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for index, heading in enumerate(headings):
        table.add_column(heading, justify="left" if index < left_columns else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    text = io.StringIO()
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
    console = Console(file=text, highlight=False, markup=False, width=_WIDTH, force_terminal=colour)
    console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


def csv_text(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Comma-separated values with a heading line."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(headings)
    writer.writerows(rows)
    return text.getvalue()


def ms(value: float) -> str:
    """Milliseconds: whole from 100 on, else three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def percent(value: float | None) -> str:
    """A fraction as a percentage; a dash where there is none."""
    return "-" if value is None else f"{value:.1%}"
