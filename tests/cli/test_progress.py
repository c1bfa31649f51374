"""Bars are for terminals and for long work."""

from __future__ import annotations

import io

import pytest

from pointsman.cli import progress


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
