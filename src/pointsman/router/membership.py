"""Which replicas there are, and which of them a request may go to.

A replica has a number, from its slot. Numbers are never given to another one, for the log, the
prefixes and the sessions go by them; so there are only so many slots.

    serving --drain--> draining --its last request ends, or cut off--> removed
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pointsman.core.errors import InputError
from pointsman.router.health import Health, State
from pointsman.router.pool import Connect, Pool, connect_over_tcp
from pointsman.router.settings import Resilience
from pointsman.router.upstream import ReplicaAddress

SPARE_SLOTS = 32

# Fractions of its multiples are spread evenly however few or many of them are taken, so that any
# share of the requests is an even one. Source: H. Weyl, Über die Gleichverteilung von Zahlen
# mod. Eins, Mathematische Annalen 77, 1916; the golden ratio is the number of least discrepancy.
_GOLDEN = 0.6180339887498949


class MembershipError(InputError):
    """A replica that cannot be added, or is not there. ``http_status``: of the answer to that."""

    def __init__(self, message: str, http_status: int, code: str) -> None:
        super().__init__(message)
        self.http_status = http_status
        self.code = code


@dataclass(slots=True, eq=False)
class Replica:
    """One replica. ``in_flight``: requests that were sent there and have not ended."""

    number: int
    pool: Pool
    health: Health
    in_flight: int = 0
    is_draining: bool = False
    leaves: bool = False  # once nothing is in flight there
    is_removed: bool = False

    @property
    def url(self) -> str:
        """Its address as it was given."""
        return self.pool.address.url

    @property
    def state(self) -> str:
        """In one word: that of its health, or warming, draining or removed."""
        if self.is_removed:
            return "removed"
        if self.is_draining:
            return "draining"
        return "warming" if self.health.is_warming else self.health.state.value


@dataclass(frozen=True, slots=True)
class Means:
    """What a membership works with: ``clock_s`` never goes back, ``connect`` makes connections."""

    resilience: Resilience = field(default_factory=Resilience)
    clock_s: Callable[[], float] = lambda: asyncio.get_running_loop().time()
    connect: Connect = connect_over_tcp


class Membership:
    """The replicas of a router, in ``slots`` numbers.

    ``on_opening`` is called when a request that could not be sent may now find a replica;
    ``on_joined`` when a replica was added after the start, ``on_left`` when one was removed,
    ``on_restarted`` when one is back that may have been started anew in between.
    """

    def __init__(self, addresses: Sequence[ReplicaAddress], means: Means, slots: int) -> None:
        self.slots = slots
        self.on_opening: Callable[[], None] = lambda: None
        self.on_joined: Callable[[Replica], None] = lambda replica: None
        self.on_restarted: Callable[[Replica], None] = lambda replica: None
        self.on_left: Callable[[Replica], None] = lambda replica: None
        self._means = means
        self._members: list[Replica] = []
        self._ready: list[int] = []
        self._asked = 0
        self._is_warming = False  # whether one that is ready may get less than its share
        for address in addresses:
            self._new(address)
        self._sort_out()

    # Who is there.

    @property
    def members(self) -> list[Replica]:
        """All that are not removed."""
        return [replica for replica in self._members if not replica.is_removed]

    @property
    def ever(self) -> list[Replica]:
        """All that there ever were, by their numbers."""
        return self._members

    @property
    def ids(self) -> list[int]:
        """The numbers of all that are not removed."""
        return [replica.number for replica in self.members]

    def states(self) -> dict[int, str]:
        """The state of each that is not removed, by number."""
        return {replica.number: replica.state for replica in self.members}

    def __getitem__(self, number: int) -> Replica:
        return self._members[number]

    def member(self, number: int) -> Replica:
        """The replica of that number. Raises MembershipError where there is none."""
        if not (0 <= number < len(self._members)) or self._members[number].is_removed:
            known = ", ".join(map(str, self.ids)) or "none"
            message = f"replica {number} is not there; expected one of: {known}"
            raise MembershipError(message, 404, "unknown_replica")
        return self._members[number]

    # Who comes and goes.

    def add(self, address: ReplicaAddress) -> Replica:
        """A new replica; it gets its share little by little.

        Raises MembershipError where the address is there already, or all slots have been used.
        """
        for replica in self.members:
            if replica.pool.address == address:
                message = f"{address.url} is replica {replica.number}, {replica.state}"
                raise MembershipError(message, 409, "replica_exists")
        if len(self._members) == self.slots:
            message = (
                f"all {self.slots} numbers of replicas have been used, and none is used twice;"
                " restart the router to add more"
            )
            raise MembershipError(message, 409, "no_slots")
        replica = self._new(address)
        replica.health.start_slowly()
        self.on_joined(replica)
        self._sort_out()
        return replica

    def drain(self, number: int) -> Replica:
        """Send no more requests there; those in flight go on."""
        replica = self.member(number)
        replica.is_draining = True
        self._sort_out()
        return replica

    def remove(self, number: int, *, at_once: bool = False) -> Replica:
        """Drain, and forget the replica when its last request has ended.

        ``at_once``: requests in flight end as if the replica had died.
        """
        replica = self.drain(number)
        replica.leaves = True
        if at_once:
            replica.pool.cut_off()
        self._let_go(replica)
        return replica

    # Requests.

    @property
    def ready(self) -> list[int]:
        """Those that requests may go to: all that are up, or else those that are only unwell."""
        return self._ready

    @property
    def has_room(self) -> bool:
        """Whether one of those that are ready is not full."""
        return any(self._has_room(self._members[number]) for number in self._ready)

    def _has_room(self, replica: Replica) -> bool:
        most = self._means.resilience.max_in_flight
        return most is None or replica.in_flight < most

    def candidates(self, without: set[int]) -> list[int]:
        """Those for the next request, ``without`` some: ready, not full, and, while they are
        warming up, in their turn, unless none would remain."""
        free = self._free(without)
        self._asked += 1
        if not self._is_warming:
            return free
        draw = self._asked * _GOLDEN % 1.0
        shares = {number: self._members[number].health.share() for number in self._ready}
        self._is_warming = any(share < 1.0 for share in shares.values())
        return [number for number in free if shares[number] > draw] or free

    def _free(self, without: set[int]) -> list[int]:
        most = self._means.resilience.max_in_flight
        if most is None and not without:
            return self._ready
        members = self._members
        return [
            number
            for number in self._ready
            if number not in without and self._has_room(members[number])
        ]

    def sent(self, number: int) -> Replica:
        """A request is on its way there."""
        replica = self._members[number]
        replica.in_flight += 1
        return replica

    def ended(self, replica: Replica) -> None:
        """One of its requests has ended."""
        replica.in_flight -= 1
        assert replica.in_flight >= 0
        self._let_go(replica)
        self.on_opening()

    # Time.

    def check(self, now_s: float) -> None:
        """End what has been silent for too long."""
        for replica in self._members:
            replica.pool.check(now_s)

    def close(self) -> None:
        """Give up the idle connections of all."""
        for replica in self._members:
            replica.pool.close()

    def _new(self, address: ReplicaAddress) -> Replica:
        resilience, clock_s = self._means.resilience, self._means.clock_s
        health = Health(resilience.probing, clock_s, self._sort_out)
        pool = Pool(address, resilience.timeouts, health, self._means.connect)
        replica = Replica(len(self._members), pool, health)
        self._members.append(replica)
        return replica

    def _let_go(self, replica: Replica) -> None:
        if replica.leaves and not (replica.in_flight or replica.is_removed):
            replica.is_removed = True
            replica.pool.close()
            self.on_left(replica)

    def _sort_out(self) -> None:
        serving = [replica for replica in self.members if not replica.is_draining]
        up = [replica.number for replica in serving if replica.health.state is State.UP]
        unwell = [replica.number for replica in serving if replica.health.state is State.UNWELL]
        for number in up:
            health = self._members[number].health
            if health.may_have_restarted:
                health.may_have_restarted = False
                self.on_restarted(self._members[number])
        self._ready = up or unwell  # a new list: choices keep the one they were made from
        self._is_warming = True  # until it is found that none is
        self.on_opening()
