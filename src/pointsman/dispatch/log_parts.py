"""Which of a log's files comes first, by what they say of themselves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from pointsman.core.errors import MachineError
from pointsman.dispatch.record import Snapshot

FIRST_FILE = 1


def in_order(paths: Sequence[Path]) -> tuple[Path, ...]:
    """The files as they were written one after the other, whatever their names.

    Raises MachineError for one that cannot be read; what else is wrong with it is for its reader
    to find.
    """
    return tuple(paths) if len(paths) == 1 else tuple(sorted(paths, key=_number_of))


def _number_of(path: Path) -> int:
    """The file's number in its log: a snapshot, in the second line, tells it."""
    try:
        with open(path, "rb") as file:
            file.readline()
            second = file.readline()
    except OSError as error:
        raise MachineError(f"cannot read {path}: {error.strerror}") from error
    try:
        return msgspec.json.decode(second, type=Snapshot).file
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return FIRST_FILE
