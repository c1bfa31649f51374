"""A router with its live page in a thread, for tests that a browser's own loop runs."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pointsman.router.ui.access import UiSettings
from tests.router.fake_replicas import Script, answer_stream
from tests.router.routers import Bench, bench, chat, run

CHAT = "/v1/chat/completions"
START_S = 120


@dataclass
class LiveRouter:
    """``at`` belongs to the thread's loop."""

    at: Bench
    loop: asyncio.AbstractEventLoop
    ends: asyncio.Event

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.at.port}"

    def ask(self, text: str = "word " * 400, **headers: str) -> None:
        """One stream, to its end."""
        connection = http.client.HTTPConnection("127.0.0.1", self.at.port, timeout=10)
        body = json.dumps(chat(text, stream=True))
        connection.request("POST", CHAT, body, headers)
        assert b"[DONE]" in connection.getresponse().read()
        connection.close()

    def end(self) -> None:
        """It stops; also where it has."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.ends.set)


@contextmanager
def live_router(*scripts: Script, **given) -> Iterator[LiveRouter]:
    """Two replicas that stream, where no scripts say otherwise."""
    found: list[LiveRouter] = []
    started = threading.Event()

    async def main() -> None:
        wanted = {"ui": UiSettings(), **given}
        async with bench(*(scripts or (answer_stream, answer_stream)), **wanted) as at:
            found.append(LiveRouter(at, asyncio.get_running_loop(), asyncio.Event()))
            started.set()
            await found[0].ends.wait()

    thread = threading.Thread(target=run, args=(main(),))
    thread.start()
    try:
        assert started.wait(START_S), "the router did not start"
        yield found[0]
    finally:
        if found:
            found[0].end()
        thread.join()
