"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pointsman.core.errors import MachineError


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Open a new file that takes the place of ``path`` only when the block ends without error.

    Raises MachineError, naming the path, when the folder is missing or cannot be written.
    """
    path = path.resolve() if path.is_symlink() else path
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise MachineError(f"cannot write {path}: {error.strerror}") from error
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException as error:
        os.unlink(temporary)
        if isinstance(error, OSError) and not isinstance(error, MachineError):
            raise MachineError(f"cannot write {path}: {error.strerror}") from error
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
