"""A rank ends once: with its result, or with why there is none, whoever finds out first.

A rank may be blocked inside torch when another one dies and torchrun tells it to end, and Python
runs no signal handler then. The bytes that a signal writes to its wake-up descriptor are read by a
thread, which is not blocked.

What a rank died of is told to rank 0 through torchrun's own key-value store, over a connection of
its own: the one of the process group may be in use.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, NoReturn

from pointsman.bench.mechanism.ranks import Place

_LAST_WORDS = "pointsman/mechanism/last_words"
_STORE_TIMEOUT = timedelta(seconds=10)
EXIT_FAILED = 1

# Stage and reason; called on rank 0 alone.
WriteFailure = Callable[[str, str], None]


class LastWords:
    """What the first rank that failed said of it."""

    def __init__(self, torch: Any, place: Place) -> None:
        self._store = torch.distributed.TCPStore(
            place.store_host, place.store_port, is_master=False, timeout=_STORE_TIMEOUT
        )
        self._rank = place.rank

    def say(self, reason: str) -> None:
        """Say it, unless another one was first."""
        self._store.compare_set(_LAST_WORDS, "", f"rank {self._rank}: {reason}")

    def heard(self) -> str | None:
        """What was said."""
        if not self._store.check([_LAST_WORDS]):
            return None
        return str(self._store.get(_LAST_WORDS).decode())


class Ending:
    """How this rank ends. ``stage`` is what it is at."""

    def __init__(self, rank: int, write_failure: WriteFailure) -> None:
        self.stage = "start"
        self.words: LastWords | None = None
        self._rank = rank
        self._write_failure = write_failure
        self._ended = threading.Lock()
        self._written_by_signals: socket.socket | None = None  # kept open

    def listen(self) -> None:
        """From now on SIGTERM and SIGINT end the process with a failure."""
        reading, writing = socket.socketpair()
        writing.setblocking(False)
        signal.set_wakeup_fd(writing.fileno())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: None)
        self._written_by_signals = writing
        threading.Thread(target=self._wait_for_signal, args=(reading,), daemon=True).start()

    def claim(self) -> None:
        """Return to the one that ends the process; to any later one, never."""
        if not self._ended.acquire(blocking=False):
            threading.Event().wait()

    def fail(self, reason: str) -> NoReturn:
        """End the process: rank 0 writes the failure, another one tells rank 0 of it.

        Nothing is torn down: where a rank is missing that may take for ever.
        """
        self.claim()
        try:
            if self._rank == 0:
                self._write_failure(self.stage, self._heard() or reason)
            elif self.words is not None:
                self.words.say(reason)
        finally:
            _end()

    def _heard(self) -> str | None:
        if self.words is None:
            return None
        try:
            return self.words.heard()
        except RuntimeError:  # torch's own: the store is gone with torchrun
            return None

    def _wait_for_signal(self, reading: socket.socket) -> NoReturn:
        number = reading.recv(1)[0]
        if self._rank != 0:  # it is told to end, and has nothing to say of why
            self.claim()
            _end()
        if number == signal.SIGINT:
            self.fail("interrupted")
        self.fail("told to end, as torchrun does where another rank ended without a word")


def _end() -> NoReturn:
    sys.stderr.flush()
    os._exit(EXIT_FAILED)
