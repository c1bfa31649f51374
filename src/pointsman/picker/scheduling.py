"""How the threads of gRPC share processors with the one that picks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def threads_that_wait_their_turn() -> Iterator[None]:
    """Threads that are born within never interrupt one that runs, on being woken; others do.

    gRPC wakes several threads for each message. On a shared processor each of them would interrupt
    the thread that picks, for a few microseconds of work each: two thirds of all switches, and a
    fifth of the time of a pick. Its threads are of SCHED_BATCH therefore (source: sched(7)), and so
    are the threads that they make; the one that picks is as before. Where the system has no such
    thing, forbids it, or was told something else of this process, all stays as it is.
    """
    before = _policy()
    if before is None or not _is_set_to(os.SCHED_BATCH):
        yield
        return
    try:
        yield
    finally:
        _is_set_to(before)


def _policy() -> int | None:
    """That of this thread, if it is the usual one and there is another."""
    if not hasattr(os, "SCHED_BATCH"):
        return None
    policy = os.sched_getscheduler(0)
    return policy if policy == os.SCHED_OTHER else None


def _is_set_to(policy: int) -> bool:
    try:
        os.sched_setscheduler(0, policy, os.sched_param(0))
    except OSError:
        return False
    return True
