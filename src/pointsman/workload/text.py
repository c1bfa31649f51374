"""Files of text as numbered lines: plain, gzip or zstd by their first bytes, with a digest.

bytes on disk  ->  sha256  ->  decompressed  ->  lines without their ends, blank ones left out
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from pointsman.core.errors import InputError, MachineError, shown
from pointsman.core.files import unreadable
from pointsman.workload.inflate import compression_of, inflated

STANDARD_INPUT = "-"
MAX_LINE_BYTES = 1 << 26

_CHUNK_BYTES = 1 << 18
# A line as long as this is a request's only where it is a JSON object.
_JUDGED_BYTES = 1 << 20
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class TextFile:
    """An open file of lines; ``-`` is standard input. Use it in a ``with`` block.

    Raises InputError where the path leads to no file, MachineError where it may not be read.
    """

    def __init__(self, path: str | Path, on_bytes: Callable[[int], None] | None = None) -> None:
        self.name = "stdin" if str(path) == STANDARD_INPUT else str(path)
        # A pipe gives its bytes once; only a file can be opened and read again.
        self.is_file = str(path) != STANDARD_INPUT and os.path.isfile(path)
        self.compression: str | None = None  # known with the first line
        self._digest = hashlib.sha256()
        self._on_bytes = on_bytes
        self._file = _opened(str(path))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._file is not sys.stdin.buffer:
            self._file.close()

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Each line that is not blank, with its number from 1 on.

        Ends of lines and a UTF-8 byte order mark are cut off. Raises InputError for compressed
        data that is damaged or ends early, for UTF-16, for a line over 64 MiB, and for one over
        1 MiB that is no JSON object. No more than a line and a few MiB are held.
        """
        for number, line in self._split():
            if number == 1:
                if line.startswith(_UTF16_MARKS):
                    raise InputError(f"{self.name}: the text is UTF-16; expected UTF-8")
                line = line.removeprefix(_UTF8_MARK)  # noqa: PLW2901
            if line and not line.isspace():
                yield number, line

    def sha256(self) -> str:
        """The digest of all bytes of the file as they lie on disk, read or not yet."""
        for _ in self._chunks():
            pass
        return self._digest.hexdigest()

    def _chunks(self) -> Iterator[bytes]:
        try:
            while chunk := self._file.read(_CHUNK_BYTES):
                self._digest.update(chunk)
                if self._on_bytes is not None:
                    self._on_bytes(len(chunk))
                yield chunk
        except OSError as error:
            raise MachineError(f"cannot read {self.name}: {error.strerror}") from error

    def _text(self) -> Iterator[bytes]:
        chunks = self._chunks()
        first = next(chunks, b"")
        chunks = chain((first,), chunks)
        self.compression = compression_of(first)
        if self.compression is None:
            return chunks
        return inflated(chunks, self.compression, self.name)

    def _split(self) -> Iterator[tuple[int, bytes]]:
        """The lines that are not empty, with their numbers; the work is linear in the bytes."""
        number = 1
        begun: list[bytes] = []  # parts, none empty, of the line that has no end yet
        begun_bytes = 0
        for piece in self._text():
            if not begun and piece.isspace():
                number += piece.count(b"\n")
                continue
            first, *others = piece.split(b"\n")
            if others:
                yield number, b"".join((*begun, first))
                begun, begun_bytes = [], 0
                first = others.pop()
                for line in others:
                    number += 1
                    if line:
                        yield number, line
                number += 1
            if first:
                begun.append(first)
                begun_bytes += len(first)
                self._check_begun(begun[0], begun_bytes, number)
        yield number, b"".join(begun)

    def _check_begun(self, first: bytes, begun_bytes: int, number: int) -> None:
        if begun_bytes <= _JUDGED_BYTES:
            return
        if begun_bytes > MAX_LINE_BYTES:
            raise InputError(
                f"{self.name}: a line is longer than {MAX_LINE_BYTES} bytes;"
                " expected one request a line"
            )
        start = first.removeprefix(_UTF8_MARK).lstrip()
        if start and not start.startswith(b"{"):
            raise InputError(
                f"{self.name} line {number}: {shown(start[:40].decode('utf-8', 'replace'))}"
                f" begins a line of more than {_JUDGED_BYTES} bytes; expected one request a line"
            )


def _opened(path: str) -> IO[bytes] | Any:
    if path == STANDARD_INPUT:
        return sys.stdin.buffer
    try:
        return Path(path).open("rb")
    except (OSError, ValueError) as error:
        raise unreadable(Path(path), error) from None
