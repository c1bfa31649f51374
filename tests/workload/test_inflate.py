from __future__ import annotations

import gzip
import zlib

import pytest
import zstandard

from pointsman.workload.inflate import compression_of, inflated

PACKED = (gzip.compress, zstandard.compress)


@pytest.mark.parametrize("pack", PACKED)
@pytest.mark.parametrize("length", [0, 1, 1 << 18, (1 << 18) + 1, 3_000_000])
def test_all_of_it_comes_out_in_order(pack, length):
    content = (b"0123456789abcdef" * (length // 16 + 1))[:length]
    packed = pack(content)
    kind = compression_of(packed)
    assert b"".join(inflated(iter([packed[:7], packed[7:]]), kind, "f")) == content


@pytest.mark.parametrize(
    ("pack", "most"), [(gzip.compress, 1 << 18), (zstandard.compress, 1 << 25)]
)
def test_no_piece_is_large_however_well_it_was_packed(pack, most):
    packed = pack(b"\n" * 100_000_000)
    sizes = [len(piece) for piece in inflated(iter([packed]), compression_of(packed), "f")]
    assert sum(sizes) == 100_000_000
    assert max(sizes) <= most


def test_what_is_not_packed_is_known_by_its_first_bytes():
    assert compression_of(b'{"a": 1}') is None
    assert compression_of(zlib.compress(b"a")) is None
