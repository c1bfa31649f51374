"""Runs a program as a process group of its own, and ends all of it when its starter ends.

As a program: ``supervisor.py GRACE_S COMMAND...``, of the standard library alone, so that it is
there at once.

    starter ==pipe==> supervisor ----> the leader of a group ----> the group's processes

| | |
|---|---|
| stdin | its end, which comes with the starter's whatever ends that, is the word to stop |
| stdout | one line: ``started PID`` or ``failed REASON`` |
| stderr | where the group writes: its log |
| exit | the leader's code, 128 + N after signal N |

To stop: SIGTERM to the leader; when it has ended, SIGTERM to what it left; after GRACE_S each
time SIGKILL. Left are the group, and on Linux also what left the group and lost its parent, for
that is ours then (PR_SET_CHILD_SUBREAPER). The leader dies with us (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1  # include/uapi/linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36
_STEP_S = 0.02
CANNOT_START = 127


def main(arguments: Sequence[str]) -> int:
    """The leader's code."""
    grace_s = float(arguments[0])
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        leader = subprocess.Popen(
            arguments[1:],
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            start_new_session=True,
            # There is one thread yet.
            preexec_fn=lambda: _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),  # noqa: PLW1509
        )
    except OSError as error:
        print("failed", error.strerror, flush=True)
        return CANNOT_START
    print("started", leader.pid, flush=True)
    _stop_when_told(leader, grace_s)
    code = leader.wait()
    _end_what_is_left(leader.pid, grace_s)
    return code if code >= 0 else 128 - code


def _stop_when_told(leader: subprocess.Popen[bytes], grace_s: float) -> None:
    def stop() -> None:
        leader.terminate()
        time.sleep(grace_s)
        leader.kill()

    def read() -> None:
        os.read(0, 1)
        stop()

    def on_signal(*_: object) -> None:
        threading.Thread(target=stop, daemon=True).start()

    signal.signal(signal.SIGTERM, on_signal)
    threading.Thread(target=read, daemon=True).start()


def _end_what_is_left(group: int, grace_s: float) -> None:
    began_s = time.monotonic()
    number = signal.SIGTERM
    while left := _left(group):
        waited_s = time.monotonic() - began_s
        if waited_s >= 2.0 * grace_s:
            print(f"supervisor: not ended by SIGKILL: {left}", file=sys.stderr)
            return
        if waited_s >= grace_s:
            number = signal.SIGKILL
        if waited_s >= grace_s or waited_s < _STEP_S:
            for each in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(each, number)
        time.sleep(_STEP_S)


def _left(group: int) -> list[int]:
    """What can be signalled: processes, or, where there is no /proc, the group as a whole."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    if os.path.isdir("/proc/self"):
        return [*group_members(group), *_adopted(group)]
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return []
    return [-group]


def group_members(group: int) -> list[int]:
    """The processes of the group that run; none where there is no /proc."""
    return [pid for pid, _, its_group in _running() if its_group == group]


def _adopted(group: int) -> list[int]:
    ours = os.getpid()
    return [pid for pid, parent, its_group in _running() if parent == ours and its_group != group]


def _running() -> list[tuple[int, int, int]]:
    """(process, parent, group) of all that are not dead. Source: proc_pid_stat(5)."""
    found = []
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else []:
        if not name.isdecimal():
            continue
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:
            state, parent, its_group = stat.read().rpartition(b")")[2].split()[:3]
            if state not in (b"Z", b"X"):
                found.append((int(name), int(parent), int(its_group)))
    return found


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
