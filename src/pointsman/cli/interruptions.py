"""Being told to end while Python cannot raise: in a callback of compiled code."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_AGAIN_AFTER_S = 0.05


@contextmanager
def interruptions_reach_us() -> Iterator[None]:
    """In this block a signal that a callback swallows comes again, until it is heard.

    LLVM calls Python back while it compiles; an exception there is printed and forgotten, so that
    neither Ctrl-C nor SIGTERM would end the command.
    """
    before = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        if isinstance(unraisable.exc_value, KeyboardInterrupt):
            _send_again(signal.SIGINT)
        elif isinstance(unraisable.exc_value, SystemExit):
            _send_again(signal.SIGTERM)
        else:
            before(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = before


def _send_again(number: int) -> None:
    timer = threading.Timer(_AGAIN_AFTER_S, os.kill, (os.getpid(), number))
    timer.daemon = True
    timer.start()
