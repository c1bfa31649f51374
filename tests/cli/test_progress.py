"""Bars are for terminals and for long work."""

from __future__ import annotations

import io

import pytest

from pointsman.cli import progress
from pointsman.core.compiled import cache_folder


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def work(stream: io.StringIO, requests: int) -> str:
    with progress.steps(2, requests, stream) as begin:
        begin("queue_aware")
        begin("random")
    with progress.working("writing x.jsonl", requests, stream):
        pass
    return stream.getvalue()


def test_long_work_is_named_on_a_terminal():
    shown = work(Terminal(), 500_000)
    assert "queue_aware" in shown
    assert "random" in shown
    assert "writing x.jsonl" in shown


def test_a_pipe_gets_nothing():
    assert work(io.StringIO(), 500_000) == ""


def test_short_work_shows_nothing():
    assert work(Terminal(), 1_000) == ""


@pytest.mark.parametrize(("size_bytes", "shown"), [(10, True), (9, False)])
def test_a_large_file_is_shown_being_read(tmp_path, size_bytes, shown):
    file, stream = tmp_path / "t.jsonl", Terminal()
    file.write_bytes(b"x" * size_bytes)
    with progress.reading(str(file), stream, least_bytes=10) as on_bytes:
        assert (on_bytes is not None) is shown
        if on_bytes is not None:
            on_bytes(size_bytes)
    assert ("reading t.jsonl" in stream.getvalue()) is shown


def test_a_first_run_on_a_terminal_says_that_it_compiles(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    terminal, pipe = Terminal(), io.StringIO()
    progress.announce_compilation(terminal)
    progress.announce_compilation(pipe)
    assert "once for this version" in terminal.getvalue()
    assert pipe.getvalue() == ""


def test_once_it_is_compiled_nothing_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    found = cache_folder() / "sim_x" / "batching_loop._loop.run-1.py311.nbi"
    found.parent.mkdir(parents=True)
    found.touch()
    terminal = Terminal()
    progress.announce_compilation(terminal)
    assert terminal.getvalue() == ""
