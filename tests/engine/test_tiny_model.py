"""The tiny model is made once, and the same each time."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.engine

for needed in ("gguf", "tokenizers"):
    pytest.importorskip(needed, reason=f"{needed} is missing: pip install pointsman[llamacpp]")

from pointsman.bench.engines.tiny_model import tiny_model  # noqa: E402


def test_it_is_made_once_and_the_same_each_time(tmp_path):
    one = tiny_model(tmp_path / "one")
    written_ns = one.stat().st_mtime_ns
    assert tiny_model(tmp_path / "one") == one
    assert one.stat().st_mtime_ns == written_ns
    assert tiny_model(tmp_path / "two").read_bytes() == one.read_bytes()
    assert list((tmp_path / "one").iterdir()) == [one]
    assert one.read_bytes()[:4] == b"GGUF"
