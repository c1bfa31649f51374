"""Bars on a terminal for work that takes longer than a second or so; nothing on a pipe.

They go to stderr and vanish when the work is done. That something is compiled is said on a pipe
too, for it takes long and shows nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.progress import Progress

    from pointsman.core.compiled import Kernel

# What less work than this takes is done before a bar could be read.
READ_BYTES = 20_000_000
SIMULATED_REQUESTS = 500_000  # of all runs together
GENERATED_REQUESTS = 20_000

# Measured on an idle core of 2026, all of it processor time: 41 s the first form of the event loop,
# 9 s and 11 s the others; 6 s what replays a log.
COMPILING = (
    "compiling {what}, once for this version of Pointsman: some {seconds} s of an idle core,"
)
SIMULATOR, FIRST_KERNEL_S, FURTHER_KERNEL_S = "the fleet simulator", 40, 10
ACCOUNTS, ACCOUNTS_S = "the router's accounts", 6
FITTING = "fitting the costs: thousands of simulated runs, some half a minute for 300 requests"


@contextmanager
def reading(
    path: str, stream: TextIO | None = None, least_bytes: int = READ_BYTES
) -> Iterator[Callable[[int], None] | None]:
    """How much of a file has been read; gives what to call with the bytes since the last call."""
    size_bytes = os.path.getsize(path) if os.path.isfile(path) else 0
    with _bar(stream, is_long=size_bytes >= least_bytes) as progress:
        if progress is None:
            yield None
            return
        task = progress.add_task(f"reading {os.path.basename(path)}", total=size_bytes)
        yield lambda read_bytes: progress.advance(task, read_bytes)


@contextmanager
def steps(
    total: int, requests: int, stream: TextIO | None = None
) -> Iterator[Callable[[str], None]]:
    """Which of several simulations of so many requests runs; call it with each one's name."""
    with _bar(stream, is_long=total * requests >= SIMULATED_REQUESTS) as progress:
        if progress is None:
            yield lambda _: None
            return
        task = progress.add_task("", total=total)
        begun = 0

        def begin(name: str) -> None:
            nonlocal begun
            progress.update(task, description=name, completed=begun)
            progress.refresh()  # compiled code lets no other thread draw
            begun += 1

        yield begin


def announce_compilation(kernels: Iterable[Kernel], stream: TextIO | None = None) -> None:
    """Say that those forms of the event loop are compiled now that never were."""
    missing = sum(not kernel.is_cached() for kernel in kernels)
    if missing:
        seconds = FIRST_KERNEL_S + FURTHER_KERNEL_S * (missing - 1)
        _say_compiling(SIMULATOR, seconds, "a minute or more", stream)


def announce_accounts(kernels: Iterable[Kernel], stream: TextIO | None = None) -> None:
    """Say that what replays a log is compiled now, if it never was."""
    if not all(kernel.is_cached() for kernel in kernels):
        _say_compiling(ACCOUNTS, ACCOUNTS_S, "more", stream)


def _say_compiling(what: str, seconds: int, more: str, stream: TextIO | None) -> None:
    stream = sys.stderr if stream is None else stream
    said = COMPILING.format(what=what, seconds=seconds)
    print(f"{said} {more} where others use the cores", file=stream, flush=True)


def announce_fit(stream: TextIO | None = None) -> None:
    """Say on a terminal that a fit has begun, which takes a while without a word."""
    stream = sys.stderr if stream is None else stream
    if stream.isatty():
        print(FITTING, file=stream, flush=True)


@contextmanager
def working(what: str, requests: int, stream: TextIO | None = None) -> Iterator[None]:
    """That something is being done to so many requests, when nobody can say how far it is."""
    with _bar(stream, is_long=requests >= GENERATED_REQUESTS) as progress:
        if progress is not None:
            progress.add_task(what, total=None)
            progress.refresh()
        yield


@contextmanager
def _bar(stream: TextIO | None, *, is_long: bool) -> Iterator[Progress | None]:
    stream = sys.stderr if stream is None else stream
    if not (is_long and stream.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(file=stream), transient=True) as progress:
        yield progress
