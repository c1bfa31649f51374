"""What is compiled before the first request."""

from __future__ import annotations

from numba import types

from pointsman.core.compiled import Kernel
from pointsman.router.rehearsal import announce_compilation


def halves() -> Kernel:
    return Kernel(lambda number: number / 2.0, types.float64(types.float64))


def test_a_router_that_has_to_compile_says_so_and_that_it_listens_then(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    said: list[str] = []
    announce_compilation(said.append)
    announce_compilation(said.append, [halves()])
    assert len(said) == 2
    assert said[0].startswith("compiling the router, once for this version of Pointsman: some 10 s")
    assert said[0].endswith("it answers after that")


def test_a_router_that_was_compiled_before_says_nothing(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert halves()(3.0) == 1.5
    said: list[str] = []
    announce_compilation(said.append, [halves()])
    assert said == []
