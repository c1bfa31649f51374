"""The picker as a process: listens, picks until it is told to stop, and stops."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

import uvloop

from pointsman.picker.picks import check_endpoint
from pointsman.picker.service import PickerServer, grpc_module
from pointsman.picker.tls import Identity
from pointsman.router.edge import Complain
from pointsman.router.listening import listener_on, url_of
from pointsman.router.notices import Notices
from pointsman.router.rehearsal import announce_compilation
from pointsman.router.router_settings import RouterSettings
from pointsman.router.service import Router


@dataclass(frozen=True, slots=True)
class PickerSettings:
    """``router``: what chooses; its host and port are those of gRPC. ``pages``: host and port of
    /health, /ready and /metrics, if anywhere. ``identity``: what gRPC speaks TLS with; None: it
    does not. Raises InputError for replicas without an endpoint.
    """

    router: RouterSettings
    pages: tuple[str, int] | None = None
    identity: Identity | None = None

    def __post_init__(self) -> None:
        for address in self.router.replicas:
            check_endpoint(address)


def run(settings: PickerSettings, announce: Callable[[str], None], complain: Complain) -> None:
    """Pick until SIGINT or SIGTERM; ``announce`` gets the addresses once requests are taken."""
    grpc_module()  # what is not installed is said before anything is compiled
    with ExitStack() as stack:
        pages = admin = None
        if settings.pages is not None:
            pages = stack.enter_context(listener_on(*settings.pages, "--pages"))
        if settings.router.admin is not None:
            where = settings.router.admin
            admin = stack.enter_context(listener_on(where.host, where.port, "--admin"))
        runner = stack.enter_context(asyncio.Runner(loop_factory=uvloop.new_event_loop))
        runner.run(Picking(settings, pages, admin).until_told(announce, complain))


@dataclass(frozen=True, slots=True)
class Picking:
    """A picker to be, with the sockets that its pages and its admin API will listen on."""

    settings: PickerSettings
    pages: socket.socket | None = None
    admin: socket.socket | None = None

    async def until_told(self, announce: Callable[[str], None], complain: Complain) -> None:
        """Pick until SIGINT or SIGTERM; a second one ends the wait for requests in flight."""
        told: asyncio.Queue[int] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, told.put_nowait, number)
        settings = self.settings.router
        announce_compilation(complain)
        router = Router(settings, complain)
        router.membership.on_changed = Notices(router.membership, complain, loop.time).changed
        loop.add_signal_handler(signal.SIGHUP, router.reload)
        server = PickerServer(router, settings.limits.max_body_bytes, complain)
        port = await server.start(settings.host, settings.port, self.settings.identity)
        await self._start(router)
        gc.freeze()  # the collector need not go through the compiler's objects again and again
        announce(self._said(port))
        await told.get()
        await _stop_or_be_told_again(server, settings.resilience.drain_ms / 1000.0, told)
        await router.stop(drain_s=0.0)

    async def _start(self, router: Router) -> None:
        await router.start(None)
        if self.pages is not None:
            await router.start_pages(self.pages)
        if self.admin is not None and self.settings.router.admin is not None:
            await router.start_admin(self.admin, self.settings.router.admin.keys)

    def _said(self, port: int) -> str:
        host = self.settings.router.host
        scheme = "grpc" if self.settings.identity is None else "grpcs"
        own = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
        if self.pages is not None:
            own += f"; pages on {url_of(self.pages)}"
        return own if self.admin is None else f"{own}; admin on {url_of(self.admin)}"


async def _stop_or_be_told_again(
    server: PickerServer, drain_s: float, told: asyncio.Queue[int]
) -> None:
    stopping = asyncio.ensure_future(server.stop(drain_s))
    again = asyncio.ensure_future(told.get())
    await asyncio.wait((stopping, again), return_when=asyncio.FIRST_COMPLETED)
    if again.done():
        await server.stop(0.0)
    await stopping
    again.cancel()
