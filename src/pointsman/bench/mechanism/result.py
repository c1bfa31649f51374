"""The file of a mechanism run: the lesson's fields on serving replica routing, step 5, and more.

Of a row, ``rank_elapsed_ms`` are each rank's times for its own queue, the mean over the repeats;
``max_rank_makespan_ms`` is the largest of them, and ``throughput_requests_per_s_proxy`` the
requests over it, as in the lesson's own benchmark (products stand for requests: it is no rate of
serving). Of a repeat, ``max_rank_makespan_ms`` is that of its own slowest rank.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Literal

import msgspec

from pointsman.core.errors import InputError
from pointsman.core.files import unwritable
from pointsman.evidence.envelope import MechanismRun

PROJECT = "PAR-REPLICA"

Profile = Literal["PAR-CUDA-MECHANISM", "PAR-CPU-MECHANISM"]
Level = Literal["mechanism_gpu", "mechanism_cpu"]

ON_GPUS: Profile = "PAR-CUDA-MECHANISM"
ON_CPU: Profile = "PAR-CPU-MECHANISM"
LEVELS: dict[Profile, Level] = {ON_GPUS: "mechanism_gpu", ON_CPU: "mechanism_cpu"}


def read_result(path: Path, content: bytes) -> MechanismRun:
    """The run of a file that ``write_new`` wrote; InputError, naming the field, for another."""
    try:
        return msgspec.json.decode(content, type=MechanismRun)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: is no file of a mechanism run: {error}") from None


def write_new(path: Path, result: MechanismRun) -> None:
    """Write a file that was not there, whole or not at all; its folder is made.

    Raises InputError where something is there meanwhile, MachineError where it cannot be written.
    """
    text = msgspec.json.format(msgspec.json.encode(result), indent=2) + b"\n"
    temporary = _temporary_file(path, text)
    try:
        os.link(temporary, path)  # unlike a rename it never takes the place of another file
    except FileExistsError:
        raise InputError(
            f"{path}: somebody else wrote it meanwhile, and results are never overwritten;"
            " expected a name of this run's own"
        ) from None
    except OSError as error:
        raise unwritable(path, error) from None
    finally:
        os.unlink(temporary)


def _temporary_file(path: Path, text: bytes) -> str:
    """A file in the folder of ``path``, which is made."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(text)
        os.chmod(temporary, 0o644)
    except OSError as error:
        raise unwritable(path, error) from None
    return temporary
