"""The files of a log on their way: FILE, which is written, and FILE.1, FILE.2, ... before it.

A new file is written whole as FILE.new; then FILE takes its number, then FILE.new takes its name.
Whoever is killed between any two of these steps has lost nothing.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Literal

from pointsman.core.checks import check_integer
from pointsman.core.errors import InputError
from pointsman.core.files import unwritable

MOST_BYTES = 1 << 40


@dataclass(frozen=True, slots=True)
class Rotation:
    """After how many bytes of events a new file is begun (0: never), and how many files are kept,
    the one being written among them (0: all).

    Raises InputError for what is no such number.
    """

    most_bytes: int = 256 << 20  # some hundred thousand requests, read within seconds
    keep: int = 0

    def __post_init__(self) -> None:
        check_integer("decision log", "most_bytes", self.most_bytes, 0, most=MOST_BYTES)
        check_integer("decision log", "keep", self.keep, 0)


@dataclass(frozen=True, slots=True)
class OlderFile:
    """A file that is written no more, and by which to know it."""

    path: Path
    identity: tuple[int, int]

    def delete(self, complain: Callable[[str], None]) -> None:
        """Delete it, if it is still there, and no other one."""
        try:
            if identity_of(os.stat(self.path)) == self.identity:
                self.path.unlink()
        except FileNotFoundError:
            pass
        except OSError as error:
            complain(f"decision log: cannot delete {self.path}: {error.strerror}")


class LogFiles:
    """The file being written, and those before it that this run has written.

    ``open_file`` is None once ``close`` was called, until ``begin_next``.
    """

    def __init__(self, path: Path, rotation: Rotation) -> None:
        """Create FILE. Raises InputError where it holds something, or where one of another run
        would be in the way of a later file, MachineError where it cannot be created."""
        self.number = 1
        self._rotation = rotation
        self._older: deque[OlderFile] = deque()
        self._path = Path(os.path.realpath(path))  # a link is followed
        try:
            # What is no plain file, a pipe or a device, has no files beside it.
            self.can_rotate = not path.exists() or path.is_file()
            if self.can_rotate:
                self._refuse_those_of_another_run(path)
            self.open_file: IO[bytes] | None = _opened(path, "ab")
        except OSError as error:
            raise unwritable(path, error, "decision log ") from error
        self._identity = identity_of(os.fstat(self.open_file.fileno()))

    @property
    def has_moved(self) -> bool:
        """Whether FILE is no longer the file that is, or was, written, as far as one can see."""
        try:
            return identity_of(os.stat(self._path)) != self._identity
        except OSError:
            return True

    def begin_next(self, beginning: Sequence[bytes]) -> None:
        """Go on in a new file that begins with these pieces.

        Raises OSError, with everything as it was.
        """
        new = self._beside("new")
        file = _opened(new, "xb")  # what bears this name already is not ours
        try:
            for piece in beginning:
                write_all(file, piece)
            older = self._put_away(self._path, new)
        except BaseException:
            file.close()
            with suppress(OSError):
                new.unlink()
            raise
        with suppress(OSError):
            self.close()
        if older is not None:
            self._older.append(OlderFile(older, self._identity))
        self.open_file, self._identity = file, identity_of(os.fstat(file.fileno()))
        self.number += 1

    def take_surplus(self) -> list[OlderFile]:
        """The oldest that are too many; they are the caller's to delete."""
        keep = self._rotation.keep
        count = max(0, len(self._older) - (keep - 1)) if keep else 0
        return [self._older.popleft() for _ in range(count)]

    def close(self) -> None:
        """Write no more to the open file."""
        if self.open_file is not None:
            self.open_file.close()
            self.open_file = None

    def _put_away(self, path: Path, new: Path) -> Path | None:
        """Give FILE its number, and the new one its name; where FILE is now.

        None where it was moved before; what stands there instead is replaced if it is empty.
        """
        if self.has_moved:
            if path.exists() and path.stat().st_size:
                raise FileExistsError(0, f"another file stands at {path}")
            os.rename(new, path)
            return None
        older = self._first_free()
        os.rename(path, older)
        try:
            os.rename(new, path)
        except OSError:
            os.rename(older, path)
            raise
        return older

    def _first_free(self) -> Path:
        number = self.number
        while self._beside(str(number)).exists():
            number += 1
        return self._beside(str(number))

    def _beside(self, ending: str) -> Path:
        return self._path.with_name(f"{self._path.name}.{ending}")

    def _refuse_those_of_another_run(self, path: Path) -> None:
        if path.exists() and path.stat().st_size:
            raise InputError(f"decision log {path} exists; name a new file, or remove it")
        for ending in ("1", "new") if self._rotation.most_bytes else ("new",):
            other = self._beside(ending)
            if other.exists():
                raise InputError(
                    f"decision log {path}: {other} is there, of another run; name a new file, or"
                    " move it"
                )


def write_all(file: IO[bytes], text: bytes) -> None:
    """Write it, in as many pieces as the system takes. Raises OSError."""
    left = memoryview(text)
    while left:
        left = left[file.write(left) :]


def _opened(path: Path, mode: Literal["ab", "xb"]) -> IO[bytes]:
    """Without a buffer of its own: the log's alone decides what is on its way."""
    return open(path, mode, buffering=0)


def identity_of(state: os.stat_result) -> tuple[int, int]:
    """By which to know a file whatever its name."""
    return state.st_dev, state.st_ino
