"""Replicas that are found by a name: one for each address that DNS has for it.

Names are looked up again and again. A new address is a new replica, which starts slowly; one that
is gone is drained and removed. A name that cannot be looked up changes nothing: that the server of
names is away says nothing of the replicas.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from pointsman.core.checks import check_number
from pointsman.core.errors import InputError
from pointsman.router.edge import Complain
from pointsman.router.replica_options import ReplicaOptions
from pointsman.router.roster import Roster
from pointsman.router.upstream import ReplicaAddress, replica_address

Resolve = Callable[[ReplicaAddress], Awaitable[list[str]]]

LEAST_INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True)
class Names:
    """``http://NAME:PORT``, looked up every ``interval_s``; ``found`` at the start.

    Raises InputError for an interval that is too short.
    """

    names: tuple[ReplicaAddress, ...]
    found: tuple[ReplicaOptions, ...]
    interval_s: float = 5.0

    def __post_init__(self) -> None:
        check_number("discovery", "interval_s", self.interval_s)
        if self.interval_s < LEAST_INTERVAL_S:
            raise InputError(
                f"discovery: interval_s is {self.interval_s:g}; expected at least"
                f" {LEAST_INTERVAL_S:g}"
            )


def found_at(names: Sequence[ReplicaAddress], interval_s: float) -> Names:
    """The names with their addresses now. Raises InputError for one that has none."""
    found: dict[ReplicaAddress, ReplicaOptions] = {}
    for name in names:
        try:
            hosts = _chosen(socket.getaddrinfo(name.host, name.port, type=socket.SOCK_STREAM))
        except OSError as error:
            raise InputError(f"--discover {name.url}: has no address: {_why(error)}") from None
        for host in hosts:
            address = _at(name, host)
            found[address] = ReplicaOptions(address)
    return Names(tuple(names), tuple(found.values()), interval_s)


async def resolve(name: ReplicaAddress) -> list[str]:
    """Its IP addresses now. Raises OSError where there are none."""
    loop = asyncio.get_running_loop()
    return _chosen(await loop.getaddrinfo(name.host, name.port, type=socket.SOCK_STREAM))


class Discovery:
    """Looks the names up, and has the roster follow what they stand for."""

    def __init__(
        self, names: Names, roster: Roster, complain: Complain, resolve: Resolve = resolve
    ) -> None:
        self._names = names
        self._roster = roster
        self._complain = complain
        self._resolve = resolve
        self._found: dict[ReplicaAddress, list[str]] = {}  # of each name, the last time it had any
        self._failing: set[ReplicaAddress] = set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look from now on."""
        self._task = asyncio.get_running_loop().create_task(self._go_on_looking())

    def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()

    async def look(self) -> None:
        """Look all names up once."""
        for name in self._names.names:
            await self._look_up(name)
        if len(self._found) < len(self._names.names):
            return  # of a name that was never looked up here the replicas are those of the start
        addresses = {_at(name, host): None for name, hosts in self._found.items() for host in hosts}
        self._roster.follow("--discover", [ReplicaOptions(address) for address in addresses])

    async def _look_up(self, name: ReplicaAddress) -> None:
        try:
            self._found[name] = await self._resolve(name)
        except OSError as error:
            if name not in self._failing:
                self._failing.add(name)
                self._complain(
                    f"--discover {name.url}: cannot be looked up: {_why(error)}; its replicas stay"
                )
        else:
            self._failing.discard(name)

    async def _go_on_looking(self) -> None:
        while True:
            await asyncio.sleep(self._names.interval_s)
            await self.look()


def _at(name: ReplicaAddress, host: str) -> ReplicaAddress:
    where = f"[{host}]" if ":" in host else host
    return replica_address(f"http://{where}:{name.port}{name.base.decode('ascii')}", "--discover")


def _chosen(found: Sequence[tuple[object, ...]]) -> list[str]:
    """The addresses of one family: a server that has both is one replica, and not two."""
    hosts = sorted({str(each[4][0]) for each in found})  # type: ignore[index]
    return [host for host in hosts if ":" not in host] or hosts


def _why(error: OSError) -> str:
    return error.strerror or str(error)
