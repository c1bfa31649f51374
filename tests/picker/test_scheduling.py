import os
import threading

import pytest

from pointsman.picker.scheduling import threads_that_wait_their_turn

if not hasattr(os, "SCHED_BATCH"):
    pytest.skip("this system has no SCHED_BATCH", allow_module_level=True)


def policies_with(outside: int) -> tuple[int, int, int]:
    """That of a thread born within, of who made it, and of one born after, where ``outside`` is
    what the system was told before; in a thread of its own, which is no other test's."""
    found = []

    def born() -> int:
        seen = []
        thread = threading.Thread(target=lambda: seen.append(os.sched_getscheduler(0)))
        thread.start()
        thread.join()
        return seen[0]

    def main() -> None:
        os.sched_setscheduler(0, outside, os.sched_param(0))
        with threads_that_wait_their_turn():
            within = born()
        found.extend((within, os.sched_getscheduler(0), born()))

    thread = threading.Thread(target=main)
    thread.start()
    thread.join()
    return tuple(found)


def test_threads_born_within_wait_their_turn_and_no_others():
    usual, waits = os.SCHED_OTHER, os.SCHED_BATCH
    assert policies_with(usual) == (waits, usual, usual)


def test_what_the_system_was_told_of_the_process_stays():
    assert policies_with(os.SCHED_BATCH) == (os.SCHED_BATCH,) * 3
