"""A coroutine that takes no turns of the event loop.

A task begins, and goes on, only in the loop's next turn; of the CPU time of a short request each
turn costs some percent. A Flow begins at once, and goes on within the very call that gives what it
waits for: bytes that came in, mostly. It waits for Signals, and for futures and tasks as a task
does. What asks for the current task (``asyncio.timeout``) has to run in a task of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any


class Signal:
    """Given once, with or without an error, and waited for by one flow."""

    __slots__ = ("_error", "_is_given", "_waits")

    def __init__(self) -> None:
        self._is_given = False
        self._error: Exception | None = None
        self._waits: Callable[[], None] | None = None

    def give(self, error: Exception | None = None) -> None:
        """Let whoever waits go on, before this returns; given again, it does nothing."""
        if self._is_given:
            return
        self._is_given = True
        self._error = error
        if self._waits is not None:
            self._waits()

    def call(self, waits: Callable[[], None] | None) -> None:
        """Whom to call once it is given."""
        self._waits = waits

    def __await__(self) -> Generator[Signal, None, None]:
        if not self._is_given:
            yield self
        if self._error is not None:
            raise self._error


class Flow:
    """Runs a coroutine from here on; ``ended`` is told of its error, once, unless it is cancelled.

    What it is told of a cancelled one is None.
    """

    __slots__ = ("_coroutine", "_ended", "_is_cancelled", "_is_running", "_waits_for")

    def __init__(
        self, coroutine: Coroutine[Any, None, None], ended: Callable[[Exception | None], None]
    ) -> None:
        self._coroutine = coroutine
        self._ended = ended
        self._is_running = False
        self._is_cancelled = False  # and has not heard of it yet
        self._waits_for: Any = None

    def go_on(self, _: object = None) -> None:
        """Begin, or go on, until the next wait or the end."""
        self._waits_for = None
        self._is_running = True
        try:
            if self._is_cancelled:
                self._is_cancelled = False
                waits_for = self._coroutine.throw(asyncio.CancelledError())
            else:
                waits_for = self._coroutine.send(None)
        except (StopIteration, asyncio.CancelledError):
            self._ended(None)
        except Exception as error:
            self._ended(error)
        else:
            self._wait_for(waits_for)
        finally:
            self._is_running = False

    def cancel(self) -> None:
        """Let it end where it waits."""
        waits_for = self._waits_for
        if isinstance(waits_for, Signal):
            waits_for.call(None)
            self._is_cancelled = True
            self.go_on()
        elif self._is_running or waits_for is not None:
            # A future that is done by now will be followed by a call all the same.
            self._is_cancelled = waits_for is None or not waits_for.cancel()

    def _wait_for(self, waits_for: Any) -> None:
        self._waits_for = waits_for
        if isinstance(waits_for, Signal):
            waits_for.call(self.go_on)
        elif waits_for is None:  # asyncio.sleep(0)
            asyncio.get_running_loop().call_soon(self.go_on)
        else:
            waits_for._asyncio_future_blocking = False
            waits_for.add_done_callback(self.go_on)
        if self._is_cancelled and waits_for is not None:
            self._is_cancelled = False
            self.cancel()
