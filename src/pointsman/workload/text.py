"""Files of text as numbered lines: plain, gzip or zstd by their first bytes, with a digest.

bytes on disk  ->  sha256  ->  decompressed  ->  lines without their ends, blank ones left out
"""

from __future__ import annotations

import hashlib
import sys
import zlib
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self

import zstandard

from pointsman.core.errors import InputError, MachineError

STANDARD_INPUT = "-"
MAX_LINE_BYTES = 1 << 28

_CHUNK_BYTES = 1 << 18
_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"
_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


class TextFile:
    """An open file of lines; ``-`` is standard input. Use it in a ``with`` block.

    Raises InputError where the path leads to no file, MachineError where it may not be read.
    """

    def __init__(self, path: str | Path, on_bytes: Callable[[int], None] | None = None) -> None:
        self.name = "stdin" if str(path) == STANDARD_INPUT else str(path)
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
        data that is damaged or ends early, for UTF-16, and for a line over 256 MiB.
        """
        number = 0
        for number, line in enumerate(self._split(), start=1):
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
        if first.startswith(_GZIP):
            return self._inflated(chunks, "gzip", lambda: zlib.decompressobj(wbits=31))
        if first.startswith(_ZSTD):
            return self._inflated(
                chunks, "zstd", lambda: zstandard.ZstdDecompressor().decompressobj()
            )
        return chunks

    def _inflated(
        self, chunks: Iterator[bytes], kind: str, start: Callable[[], _Decompressor]
    ) -> Iterator[bytes]:
        """The decompressed chunks of one or more members that follow each other."""
        member = start()
        try:
            for chunk in chunks:
                left = chunk
                while left:
                    if member.eof:
                        member = start()
                    yield member.decompress(left)
                    left = member.unused_data if member.eof else b""
        except (zlib.error, zstandard.ZstdError) as error:
            raise InputError(
                f"{self.name}: the {kind} data is damaged ({error}); expected a sound file"
            ) from None
        if not member.eof:
            raise InputError(
                f"{self.name}: the {kind} data ends early; expected a whole file (copy it again)"
            )

    def _split(self) -> Iterator[bytes]:
        rest = b""
        for chunk in self._text():
            lines = (rest + chunk).split(b"\n")
            rest = lines.pop()
            yield from lines
            if len(rest) > MAX_LINE_BYTES:
                raise InputError(
                    f"{self.name}: a line is longer than {MAX_LINE_BYTES} bytes;"
                    " expected one request a line"
                )
        if rest:
            yield rest


def _opened(path: str) -> IO[bytes] | Any:
    if path == STANDARD_INPUT:
        return sys.stdin.buffer
    try:
        return open(path, "rb")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: is a folder; expected a file") from None
    except OSError as error:
        raise MachineError(f"cannot read {path}: {error.strerror}") from error
    except ValueError:
        raise InputError(f"{path!r}: no path can hold a null character") from None
