"""Signals that a callback of compiled code swallows."""

from __future__ import annotations

import ctypes
import os
import signal
import time

import pytest

from pointsman.cli.interruptions import interruptions_reach_us

CALLBACK = ctypes.CFUNCTYPE(None)
DEADLINE_S = 20.0


def test_an_interruption_that_a_callback_swallows_comes_again():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupted() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.001)  # the signal is heard here, where no exception gets out

    try:
        with pytest.raises(KeyboardInterrupt), interruptions_reach_us():
            CALLBACK(interrupted)()
            until = time.monotonic() + DEADLINE_S
            while time.monotonic() < until:
                time.sleep(0.01)
    finally:
        signal.signal(signal.SIGINT, before)
