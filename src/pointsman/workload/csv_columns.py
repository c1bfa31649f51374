"""The columns of a CSV trace by the names in its header, and the values in its cells.

Cells are plain: numbers, times and ids without quotes. Columns stand in any order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pointsman.core.errors import InputError, missing_field, unknown_name, wrong_value
from pointsman.workload.reading import TOKENS_WANTED, time_ms
from pointsman.workload.workload import MAX_TOKENS

_NUMBER = re.compile(rb"\d{1,20}(?:\.\d{0,40})?(?:[eE][+-]?\d{1,3})?")


def has_column(line: bytes, name: str) -> bool:
    """Whether a line is a header with a column of that name."""
    return not line.startswith(b"{") and name.encode() in map(bytes.strip, line.split(b","))


class Columns:
    """Where each column stands.

    Raises InputError, beginning with ``where``, for a header with a name that is neither required
    nor optional, or that comes twice, and for one that lacks a required name.
    """

    def __init__(
        self, header: bytes, where: str, required: Sequence[str], optional: Sequence[str] = ()
    ) -> None:
        names = [name.strip() for name in header.decode("utf-8", "replace").split(",")]
        for name in names:
            if name not in (*required, *optional):
                raise unknown_name(where, "column", name, (*required, *optional))
        for name in (*required, *optional):
            if names.count(name) != 1 and (name in required or name in names):
                raise missing_field(where, name, "it once in the header")
        self._places = {name: place for place, name in enumerate(names)}

    def place(self, name: str) -> int | None:
        """The index of a column; None where the header has none of that name."""
        return self._places.get(name)

    def places(self, names: Sequence[str]) -> list[int]:
        """The indices of required columns."""
        return [self._places[name] for name in names]

    def cells(self, line: bytes, where: str) -> list[bytes]:
        """The cells of a row, one a column, without blank space around them."""
        cells = line.split(b",")
        if len(cells) != len(self._places):
            raise InputError(f"{where}: {len(cells)} columns; expected {len(self._places)}")
        return list(map(bytes.strip, cells))


def tokens_in(cell: bytes, name: str, where: str) -> int:
    """A number of tokens."""
    # Longer texts are no token counts, and int() of them would take long.
    if not cell.isdigit() or len(cell) > 12 or int(cell) > MAX_TOKENS:
        raise wrong_value(where, name, text_in(cell), TOKENS_WANTED)
    return int(cell)


def time_in(cell: bytes, name: str, where: str, ms_per_unit: float) -> float:
    """A time in ms, of a cell in a unit of so many ms."""
    if not _NUMBER.fullmatch(cell):
        raise wrong_value(where, name, text_in(cell), "a time >= 0")
    return time_ms(float(cell), ms_per_unit, name, where)


def text_in(cell: bytes) -> str:
    """A cell as text, as it appears in messages too."""
    return cell.decode("utf-8", "replace")
