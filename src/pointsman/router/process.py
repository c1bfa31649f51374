"""The router as a process: listens, serves until it is told to stop, and stops."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace

import uvloop

from pointsman.router.edge import Complain
from pointsman.router.listening import listener_on, url_of
from pointsman.router.notices import Notices
from pointsman.router.open_files import clients_with_files
from pointsman.router.rehearsal import announce_compilation
from pointsman.router.router_settings import RouterSettings
from pointsman.router.service import Router


def run(settings: RouterSettings, announce: Callable[[str], None], complain: Complain) -> None:
    """Serve until SIGINT or SIGTERM; ``announce`` gets the address once connections are taken."""
    wanted, replicas = settings.limits.max_connections, len(settings.replicas)
    limits = replace(
        settings.limits, max_connections=clients_with_files(wanted, replicas, complain)
    )
    settings = replace(settings, limits=limits)
    with ExitStack() as stack:
        listener = stack.enter_context(listener_on(settings.host, settings.port))
        admin = None
        if settings.admin is not None:
            where = settings.admin
            admin = stack.enter_context(listener_on(where.host, where.port, "--admin"))
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        runner.run(Serving(settings, listener, admin).until_told(announce, complain))


@dataclass(frozen=True, slots=True)
class Serving:
    """A router to be, with the sockets that it will listen on."""

    settings: RouterSettings
    listener: socket.socket
    admin: socket.socket | None

    async def until_told(self, announce: Callable[[str], None], complain: Complain) -> None:
        """Serve until SIGINT or SIGTERM; a second one ends the wait for requests in flight."""
        told: asyncio.Queue[int] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, told.put_nowait, number)
        announce_compilation(complain)
        router = Router(self.settings, complain)
        router.membership.on_changed = Notices(router.membership, complain, loop.time).changed
        loop.add_signal_handler(signal.SIGHUP, router.reload)
        await router.start(self.listener)
        if self.admin is not None and self.settings.admin is not None:
            await router.start_admin(self.admin, self.settings.admin.keys)
        # The collector need not go through the compiler's objects again and again, nor look for
        # cycles after every few requests, which leave none.
        gc.freeze()
        gc.set_threshold(10_000)
        announce(self._said())
        await told.get()
        await _stop_or_be_told_again(router, told)

    def _said(self) -> str:
        own = url_of(self.listener, "http" if self.settings.tls is None else "https")
        return own if self.admin is None else f"{own}; admin on {url_of(self.admin)}"


async def _stop_or_be_told_again(router: Router, told: asyncio.Queue[int]) -> None:
    stopping = asyncio.ensure_future(router.stop())
    again = asyncio.ensure_future(told.get())
    await asyncio.wait((stopping, again), return_when=asyncio.FIRST_COMPLETED)
    if again.done():
        stopping.cancel()
        await asyncio.wait((stopping,))
        await router.stop(drain_s=0.0)
    again.cancel()
