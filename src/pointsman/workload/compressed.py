"""Files that are written whole or not at all, compressed as their suffix says."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zstandard

from pointsman.core.files import whole_file

GZIP_LEVEL = 9
ZSTD_LEVEL = 10


@contextmanager
def compressed_file(path: Path) -> Iterator[Any]:
    """Open a new binary file: gzip for ``.gz``, zstd for ``.zst``, else plain.

    Nothing but the content enters it (no time, no name), so equal content gives equal bytes with
    one version of the compressing library. Raises MachineError as ``whole_file`` does.
    """
    with whole_file(path) as file:
        if path.suffix == ".gz":
            with gzip.GzipFile(
                filename="", mode="wb", fileobj=file, compresslevel=GZIP_LEVEL, mtime=0
            ) as packed:
                yield packed
        elif path.suffix == ".zst":
            compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL, write_checksum=True)
            with compressor.stream_writer(file, closefd=False) as packed:
                yield packed
        else:
            yield file
