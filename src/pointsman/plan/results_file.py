"""Finished shapes in a file, so that an interrupted plan goes on where it ended.

One JSON line a shape, ``{"key": ..., "result": ...}``, below a line that names the schema. A key is
a digest of all that went into the result, the program's own sources too: what does not fit is not
used. A last line without its end is what an interruption leaves; it is dropped.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec

from pointsman.core.compiled import source_digest
from pointsman.core.errors import InputError
from pointsman.core.files import check_can_write, read_file, unwritable
from pointsman.plan.candidate import Setup, ShapeResult
from pointsman.plan.shapes import Shape
from pointsman.workload.workload import Workload

SCHEMA = "pointsman.plan-results/1"
_HEAD = msgspec.json.encode({"schema": SCHEMA}) + b"\n"
_COLUMNS = ("arrival_ms", "prompt_tokens", "output_tokens", "session", "priority")
_CHAINS = ("chain_start", "chain_blocks", "prefix_tokens")


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    key: str
    result: ShapeResult


class ResultsFile:
    """The results that a file has, by key; ``add`` writes one more at once.

    Raises InputError for a file that is none or is damaged, MachineError where it cannot be read
    or written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._results: dict[str, ShapeResult] = {}
        if path.exists():
            self._read(read_file(path))
        else:
            check_can_write(path)

    def get(self, key: str) -> ShapeResult | None:
        """The result of that key, if it is there."""
        return self._results.get(key)

    def add(self, key: str, result: ShapeResult) -> None:
        """Keep a result, on disk before anything else is done."""
        self._results[key] = result
        line = msgspec.json.encode(_Line(key, result)) + b"\n"
        try:
            is_new = not self._path.exists() or self._path.stat().st_size == 0
            with self._path.open("ab") as file:
                file.write(_HEAD + line if is_new else line)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise unwritable(self._path, error) from error

    def _read(self, content: bytes) -> None:
        *lines, rest = content.split(b"\n")
        if len(content) < len(_HEAD) and _HEAD.startswith(content):
            self._drop_last(0)  # nothing, or what an interruption left of the first line
            return
        if not lines or lines[0] + b"\n" != _HEAD:
            raise InputError(
                f"{self._path}: not a file of plan results; expected one that --resume wrote, whose"
                f" first line names the schema {SCHEMA}, or no file"
            )
        decoder = msgspec.json.Decoder(_Line)
        for number, line in enumerate(lines[1:], 2):
            try:
                kept = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                raise InputError(
                    f"{self._path} line {number}: damaged ({error}); expected a result of"
                    f" {SCHEMA}: delete that line, or the file to plan anew"
                ) from None
            self._results[kept.key] = kept.result
        if rest:
            self._drop_last(len(content) - len(rest))

    def _drop_last(self, size_bytes: int) -> None:
        try:
            os.truncate(self._path, size_bytes)
        except OSError as error:
            raise unwritable(self._path, error) from error


def setup_digest(setup: Setup, baseline: Shape) -> str:
    """A digest of everything that all candidates share."""
    digest = hashlib.blake2b(source_digest().encode(), digest_size=16)
    for workload in setup.workloads:
        digest.update(_workload_bytes(workload))
    digest.update(msgspec.json.encode((setup.hardware, setup.question, baseline)))
    for text in setup.question.policies:
        path = Path(text.split(":")[0])
        if path.suffix == ".py" and path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


def key_of(digest: str, shape: Shape) -> str:
    """The key of one shape's result."""
    return f"{digest}:{shape.label}"


def _workload_bytes(workload: Workload) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    digest.update(f"{workload.block_size_tokens};{len(workload)}".encode())
    for name in (*_COLUMNS, *_CHAINS):
        digest.update(getattr(workload, name).tobytes())
    return digest.digest()
