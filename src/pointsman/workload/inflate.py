"""Compressed data unpacked in pieces of bounded size, however much of it comes out."""

from __future__ import annotations

import zlib
from collections.abc import Generator, Iterator

import zstandard

from pointsman.core.errors import InputError

_GZIP = b"\x1f\x8b"
_ZSTD = b"\x28\xb5\x2f\xfd"

_PIECE_BYTES = 1 << 18
_GZIP_FED_BYTES = 1 << 16
# zstd takes no limit; a block of it is 4 bytes at least and 128 KiB unpacked at most
# (RFC 8878, 3.1.1.2), so that no more than 32 MiB come of so many.
_ZSTD_FED_BYTES = 1 << 10

# Pieces; in the end, whether the last member was whole.
_Pieces = Generator[bytes, None, bool]


def compression_of(first: bytes) -> str | None:
    """How data that begins so is compressed: gzip, zstd or not."""
    if first.startswith(_GZIP):
        return "gzip"
    return "zstd" if first.startswith(_ZSTD) else None


def inflated(chunks: Iterator[bytes], kind: str, name: str) -> Iterator[bytes]:
    """What is packed in one or more members that follow each other.

    Raises InputError, beginning with ``name``, for data that is damaged or ends early.
    """
    unpack = _gunzipped if kind == "gzip" else _unzstd
    try:
        ended = yield from unpack(chunks)
    except (zlib.error, zstandard.ZstdError) as error:
        raise InputError(
            f"{name}: the {kind} data is damaged ({error}); expected a sound file"
        ) from None
    if not ended:
        raise InputError(
            f"{name}: the {kind} data ends early; expected a whole file (copy it again)"
        )


def _gunzipped(chunks: Iterator[bytes]) -> _Pieces:
    member = zlib.decompressobj(wbits=31)
    for left in _fed(chunks, _GZIP_FED_BYTES):
        while left:
            if member.eof:
                member = zlib.decompressobj(wbits=31)
            yield member.decompress(left, _PIECE_BYTES)
            left = member.unused_data if member.eof else member.unconsumed_tail  # noqa: PLW2901
    # What the last input still holds back.
    while not member.eof and (piece := member.decompress(b"", _PIECE_BYTES)):
        yield piece
    return member.eof


def _unzstd(chunks: Iterator[bytes]) -> _Pieces:
    decompressor = zstandard.ZstdDecompressor()
    member = decompressor.decompressobj()
    for left in _fed(chunks, _ZSTD_FED_BYTES):
        while left:
            if member.eof:
                member = decompressor.decompressobj()
            yield member.decompress(left)
            left = member.unused_data if member.eof else b""  # noqa: PLW2901
    return member.eof


def _fed(chunks: Iterator[bytes], size: int) -> Iterator[bytes]:
    for chunk in chunks:
        for first in range(0, len(chunk), size):
            yield chunk[first : first + size]
