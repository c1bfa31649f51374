"""Whole files: read at once, and written whole or not at all."""

from __future__ import annotations

import difflib
import errno
import os
import shlex
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO

from pointsman.core.errors import InputError, MachineError, PointsmanError

_SHOWN_NAME = 40  # characters of a file's name in that of its unfinished one
_MOST_NAMES = 10_000  # of a folder, that one is looked up among
_ALIKE_FRACTION = 0.6  # difflib's own, for close matches


def read_file(path: Path) -> bytes:
    """All bytes of a file.

    Raises InputError where the path leads to no file, MachineError where it may not be read.
    """
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None


# When a file was written last, how long it is, and which one; None: it is not there.
Stamp = tuple[int, int, int] | None


def stamp_of(path: Path) -> Stamp:
    """Another one once the file was written or replaced."""
    try:
        state = path.stat()
    except OSError:
        return None
    return state.st_mtime_ns, state.st_size, state.st_ino


def check_is_file(path: Path) -> None:
    """Refuse a path that leads to no file, with InputError, before somebody else opens it."""
    try:
        is_folder = path.is_dir()
        path.stat()
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if is_folder:
        raise unreadable(path, IsADirectoryError())


def unreadable(path: Path, error: OSError | ValueError) -> PointsmanError:
    """The error for a file that could not be opened: whoever named it is wrong, or the machine.

    Of one that is not there it names the nearest that is.
    """
    if isinstance(error, FileNotFoundError | NotADirectoryError):
        near = _nearest_file(path)
        return InputError(f"{path}: no such file{f'; did you mean {near}?' if near else ''}")
    if isinstance(error, IsADirectoryError):
        return InputError(f"{path}: is a folder; expected a file")
    if isinstance(error, OSError):
        return MachineError(f"cannot read {path}: {error.strerror}")
    return InputError(f"{str(path)!r}: no path can hold a null character")


def _nearest_file(path: Path) -> Path | None:
    """The file in the same folder whose name is most like the path's; None where none is."""
    try:
        names = [entry.name for entry in islice(os.scandir(path.parent), _MOST_NAMES)]
    except OSError:
        return None
    near = difflib.get_close_matches(path.name, names, n=3)
    for name in near:
        if _are_stems_alike(name, path.name) and path.with_name(name).is_file():
            return path.with_name(name)
    return None


def _are_stems_alike(one: str, other: str) -> bool:
    """What stands before the first dot: equal endings make no two names alike."""
    stems = (one.partition(".")[0], other.partition(".")[0])
    return difflib.SequenceMatcher(None, *stems).ratio() >= _ALIKE_FRACTION


def unwritable(path: Path, error: OSError, what: str = "") -> MachineError:
    """The error for a file that could not be written; ``what`` it is stands before its path.

    Where there is no such folder it says how to make it.
    """
    where = f"cannot write {what}{path}"
    there = next((each for each in path.parents if each.exists()), path.parent)
    if isinstance(error, FileNotFoundError) and not path.parent.is_dir():
        make = shlex.join(["mkdir", "-p", str(path.parent)])
        return MachineError(f"{where}: there is no folder {path.parent}; make it with: {make}")
    if isinstance(error, NotADirectoryError | FileExistsError) and not there.is_dir():
        return MachineError(f"{where}: {there} is a file; expected a folder")
    return MachineError(f"{where}: {error.strerror}")


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file that takes the place of ``path`` only when the block ends without error.

    A link is followed, a file keeps its permissions; a device or a named pipe is written straight
    into. Raises MachineError, naming the path, when the folder is missing or cannot be written.
    """
    given, path = path, Path(os.path.realpath(path))
    mode = 0o666 & ~_umask()
    try:
        if path.exists():
            kind = path.stat().st_mode
            if not stat.S_ISREG(kind):
                with path.open("wb") as file:
                    yield file
                return
            mode = stat.S_IMODE(kind)
        handle, temporary = _unfinished(path)
    except OSError as error:
        raise unwritable(given, error) from error
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException as error:
        os.unlink(temporary)
        if isinstance(error, OSError) and not isinstance(error, MachineError):
            raise unwritable(given, error) from error
        raise


def check_can_write(path: Path) -> None:
    """Refuse a path that ``whole_file`` could not write, before the work whose result goes there.

    Raises MachineError, naming the path; leaves nothing behind.
    """
    real = Path(os.path.realpath(path))
    try:
        if real.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not real.exists() or real.is_file():
            handle, temporary = _unfinished(real)
            os.close(handle)
            os.unlink(temporary)
    except OSError as error:
        raise unwritable(path, error) from error


def _unfinished(path: Path) -> tuple[int, str]:
    """A new file beside ``path``, by whose name it is known; as long as that may be, this one's
    would be too long."""
    return tempfile.mkstemp(prefix=f".{path.name[:_SHOWN_NAME]}.", dir=path.parent)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
