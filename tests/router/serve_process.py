"""``pointsman serve`` as users run it: a process of its own."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

START_DEADLINE_S = 120  # the first start of a version compiles

STOP_DEADLINE_S = 15


@dataclass
class Serving:
    process: subprocess.Popen
    announcement: str

    @property
    def port(self) -> int:
        return int(re.search(r"https?://[\d.]+:(\d+)", self.announcement)[1])

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(STOP_DEADLINE_S)


@contextmanager
def serving(
    *flags: str, stderr: int | None = None, open_files: int | None = None
) -> Iterator[Serving]:
    """Yields once connections are taken; always stopped. ``stderr``: as for ``Popen``;
    ``open_files``: how many the process may have.

    Replicas are not asked for their models unless the flags say so.
    """
    ours = ("--listen", "127.0.0.1:0", "--models-interval-s", "0")
    command = [sys.executable, "-m", "pointsman", "serve", *ours, *flags]
    if open_files is not None:
        command = ["sh", "-c", f'ulimit -n {open_files}; exec "$@"', "sh", *command]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    try:
        announcement = process.stdout.readline()
        assert announcement, f"pointsman serve ended with {process.wait(START_DEADLINE_S)}"
        yield Serving(process, announcement)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        process.stdout.close()
        if process.stderr is not None:
            process.stderr.close()
