"""Bars are for terminals and for long work."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from numba import types

from pointsman import POLICIES
from pointsman.calibrate.lockstep import lockstep_loop
from pointsman.calibrate.setup import EngineSetup
from pointsman.calibrate.simulated import kernels_of
from pointsman.cli import progress
from pointsman.core.compiled import Kernel
from pointsman.sim.conditions import NOTHING_SPECIAL, Change, Conditions
from pointsman.sim.kernels import kernels_for


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


def halves() -> Kernel:
    return Kernel(lambda number: number / 2.0, types.float64(types.float64))


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_a_first_run_says_that_it_compiles_on_a_pipe_too(monkeypatch, tmp_path, stream):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    shown = stream()
    progress.announce_compilation([halves()], shown)
    assert shown.getvalue() == (
        "compiling the fleet simulator, once for this version of Pointsman: some 40 s of an idle"
        " core, a minute or more where others use the cores\n"
    )


def test_a_first_replay_says_that_it_compiles(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    shown = io.StringIO()
    progress.announce_accounts([halves(), halves()], shown)
    assert shown.getvalue().startswith("compiling the router's accounts, once for this version")
    assert shown.getvalue().count("\n") == 1
    assert halves()(3.0) == 1.5
    progress.announce_accounts([halves()], shown)
    assert shown.getvalue().count("\n") == 1


def test_once_it_is_compiled_nothing_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert halves()(3.0) == 1.5
    terminal = Terminal()
    progress.announce_compilation([halves()], terminal)
    assert terminal.getvalue() == ""


def test_what_is_compiled_in_a_form_of_its_own_is_announced_too(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    changes = Conditions(changes=[Change(1.0, 0, "dies")])
    alike, other = POLICIES["round_robin"], POLICIES["fewest_misses"]
    for policies, conditions, seconds in (
        ((alike, POLICIES["queue_aware"]), NOTHING_SPECIAL, 40),
        ((alike, other), NOTHING_SPECIAL, 50),  # it reads the requests in flight
        ((alike, other), changes, 60),
    ):
        terminal = Terminal()
        progress.announce_compilation(kernels_for(policies, conditions), terminal)
        assert f"some {seconds} s of an idle core" in terminal.getvalue()


def test_engine_cores_in_lockstep_have_a_loop_of_their_own():
    setup = EngineSetup(
        max_num_seqs=1, max_num_batched_tokens=1, kv_blocks=None, block_size=1, engine_cores=2
    )
    assert kernels_of(replace(setup, lockstep=True)) == (lockstep_loop(),)
    assert lockstep_loop() not in kernels_of(setup)


def test_a_fit_is_announced_on_a_terminal_alone():
    terminal, pipe = Terminal(), io.StringIO()
    progress.announce_fit(terminal)
    progress.announce_fit(pipe)
    assert "fitting the costs" in terminal.getvalue()
    assert pipe.getvalue() == ""
