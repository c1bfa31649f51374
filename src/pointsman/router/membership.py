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
from pointsman.router.outliers import Answer, Answers
from pointsman.router.pool import Connect, Pool, connect_over_tcp
from pointsman.router.replica_options import ReplicaOptions
from pointsman.router.settings import Resilience
from pointsman.router.upstream import ReplicaAddress

# A number that is not used costs the accounts 4 bytes for each request that they have room for:
# 17 MB for all of these, with 4096 requests in flight.
SPARE_SLOTS = 1024

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
    options: ReplicaOptions
    answers: Answers
    in_flight: int = 0
    is_draining: bool = False
    leaves: bool = False  # once nothing is in flight there
    is_removed: bool = False

    @property
    def url(self) -> str:
        """Its address as it was given."""
        return self.pool.address.url

    def share(self) -> float:
        """Its weight, or less of it while it is warming up."""
        return self.options.weight * self.health.share()

    @property
    def state(self) -> str:
        """In one word: that of its health, or warming, draining or removed."""
        if self.is_removed:
            return "removed"
        if self.is_draining:
            return "draining"
        if self.health.state is State.UP and self.answers.are_set_aside:
            return "set_aside"
        return "warming" if self.health.is_warming else self.health.state.value

    @property
    def is_up(self) -> bool:
        """Whether it is well by its probes and by its answers."""
        return self.health.state is State.UP and not self.answers.are_set_aside


@dataclass(frozen=True, slots=True)
class Means:
    """What a membership works with: ``clock_s`` never goes back, ``connect`` makes connections."""

    resilience: Resilience = field(default_factory=Resilience)
    clock_s: Callable[[], float] = lambda: asyncio.get_running_loop().time()
    connect: Connect = connect_over_tcp


class Membership:
    """The replicas of a router, in ``slots`` numbers.

    ``on_opening`` is called when a request that could not be sent may now find a replica;
    ``on_changed`` when the health of one has become another;
    ``on_joined`` when a replica was added after the start, ``on_left`` when one was removed,
    ``on_restarted`` when one is back that may have been started anew in between, ``on_told`` when
    other options hold for one, with what held before.
    """

    def __init__(self, addresses: Sequence[ReplicaAddress], means: Means, slots: int) -> None:
        self.slots = slots
        self.on_opening: Callable[[], None] = lambda: None
        self.on_changed: Callable[[Replica], None] = lambda replica: None
        self.on_joined: Callable[[Replica], None] = lambda replica: None
        self.on_restarted: Callable[[Replica], None] = lambda replica: None
        self.on_left: Callable[[Replica], None] = lambda replica: None
        self.on_told: Callable[[Replica, ReplicaOptions], None] = lambda replica, before: None
        self._means = means
        self._members: list[Replica] = []
        self._ready: list[int] = []
        self._asked = 0
        self._answered = 0
        self._is_uneven = False  # whether one that is ready may be left out of some requests
        for address in addresses:
            self._new(ReplicaOptions(address))
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

    def at(self, address: ReplicaAddress) -> Replica | None:
        """The replica of that address, unless it is about to go."""
        for replica in self.members:
            if replica.pool.address == address and not replica.leaves:
                return replica
        return None

    # Who comes and goes.

    def add(self, address: ReplicaAddress) -> Replica:
        """A new replica of which no more is known; see ``enrol``."""
        return self.enrol(ReplicaOptions(address))

    def enrol(self, options: ReplicaOptions) -> Replica:
        """A new replica; it gets its share little by little.

        Raises MembershipError where the address is there already, or all slots have been used.
        """
        there = self.at(options.address)
        if there is not None:
            message = f"{there.url} is replica {there.number}, {there.state}"
            raise MembershipError(message, 409, "replica_exists")
        self._check_slots()
        replica = self._new(options)
        replica.health.start_slowly()
        self.on_joined(replica)
        self._sort_out()
        return replica

    def tell(self, number: int, options: ReplicaOptions) -> Replica:
        """Other options of the same engine hold for it from now on."""
        replica = self.member(number)
        assert options.is_same_engine_as(replica.options), "to be renewed"
        before, replica.options = replica.options, options
        self.on_told(replica, before)
        self._sort_out()
        return replica

    def renew(self, number: int, options: ReplicaOptions) -> Replica:
        """A new replica at the address of this one, which is drained and removed.

        Raises MembershipError, and changes nothing, where all slots have been used.
        """
        self._check_slots()
        self.remove(number)
        return self.enrol(options)

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
        """Those that requests may go to: all of a role that are up, or else those that are only
        unwell."""
        return self._ready

    @property
    def has_room(self) -> bool:
        """Whether one of those that are ready is not full."""
        return any(self._has_room(self._members[number]) for number in self._ready)

    def _has_room(self, replica: Replica) -> bool:
        most = self._means.resilience.max_in_flight
        return most is None or replica.in_flight < most

    def next_draw(self) -> float:
        """The next request's, from [0, 1)."""
        self._asked += 1
        return self._asked * _GOLDEN % 1.0

    def candidates(self, without: set[int], draw: float) -> list[int]:
        """Those for a request of that draw, ``without`` some: ready, not full, and, where they
        weigh less than another one or are warming up, in their turn, unless none would remain."""
        free = self._free(without)
        if not self._is_uneven:
            return free
        shares = {number: self._members[number].share() for number in self._ready}
        self._is_uneven = self._is_one_left_out_at_times()
        most = max((self._members[number].options.weight for number in free), default=1.0)
        return [number for number in free if shares[number] > draw * most] or free

    def _is_one_left_out_at_times(self) -> bool:
        ready = [self._members[number] for number in self._ready]
        weights = {replica.options.weight for replica in ready}
        return len(weights) > 1 or any(replica.health.share() < 1.0 for replica in ready)

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
        most = self._means.resilience.max_in_flight
        was_full = most is not None and replica.in_flight >= most
        replica.in_flight -= 1
        assert replica.in_flight >= 0
        if replica.leaves:
            self._let_go(replica)
        if was_full:
            self.on_opening()

    def answered(self, replica: Replica, status: int, model: str | None, request: int) -> None:
        """It answered one, whose hash that is. Errors in a row may set it aside: where another one
        answers well, and while at most half of those that are well otherwise are aside."""
        self._answered += 1
        answers = replica.answers
        if not answers.note(Answer(status, model, request, self._answered)) or not replica.is_up:
            return
        alike = (each for each in self._serving() if each.options.role == replica.options.role)
        well = [each for each in alike if each.health.state is State.UP]
        others = [each.answers for each in well if each is not replica and each.is_up]
        aside = sum(each.answers.are_set_aside for each in well)
        if 2 * (aside + 1) <= len(well) and answers.is_worse_than(others, model):
            time_ms = answers.set_aside()
            count = answers.setting_aside.answers
            replica.health.fails(f"answered {count} requests in a row with errors", time_ms)
            self._sort_out()

    # Time.

    def check(self, now_s: float) -> None:
        """End what has been silent for too long."""
        for replica in self._members:
            replica.pool.check(now_s)
            if replica.answers.may_come_back():
                replica.health.start_slowly()
                self._sort_out()

    def close(self) -> None:
        """Give up the idle connections of all."""
        for replica in self._members:
            replica.pool.close()

    def _check_slots(self) -> None:
        if len(self._members) == self.slots:
            message = (
                f"all {self.slots} numbers of replicas have been used, and none is used twice;"
                " restart the router to add more"
            )
            raise MembershipError(message, 409, "no_slots")

    def _new(self, options: ReplicaOptions) -> Replica:
        resilience, clock_s = self._means.resilience, self._means.clock_s
        number = len(self._members)
        health = Health(resilience.probing, clock_s, lambda: self._heed_health(number))
        pool = Pool(options.address, resilience.timeouts, health, self._means.connect)
        answers = Answers(resilience.setting_aside, clock_s)
        replica = Replica(number, pool, health, options, answers)
        self._members.append(replica)
        return replica

    def _heed_health(self, number: int) -> None:
        self._sort_out()
        self.on_changed(self._members[number])

    def _let_go(self, replica: Replica) -> None:
        if replica.leaves and not (replica.in_flight or replica.is_removed):
            replica.is_removed = True
            replica.pool.close()
            self.on_left(replica)

    def _serving(self) -> list[Replica]:
        return [replica for replica in self.members if not replica.is_draining]

    def _sort_out(self) -> None:
        serving = self._serving()
        for replica in serving:
            if replica.health.state is State.UP and replica.health.may_have_restarted:
                replica.health.may_have_restarted = False
                replica.answers = Answers(replica.answers.setting_aside, self._means.clock_s)
                self.on_restarted(replica)
        # A new list: choices keep the one they were made from.
        self._ready = [number for alike in _by_role(serving) for number in _ready_of(alike)]
        self._is_uneven = True  # until it is found that none is
        self.on_opening()


def _by_role(serving: list[Replica]) -> list[list[Replica]]:
    """All of them, where prefill and decode are not apart."""
    roles = dict.fromkeys(replica.options.role for replica in serving)
    return [[each for each in serving if each.options.role == role] for role in roles]


def _ready_of(alike: list[Replica]) -> list[int]:
    up = [replica.number for replica in alike if replica.is_up]
    doubtful = (State.UP, State.UNWELL)
    return up or [each.number for each in alike if each.health.state in doubtful]
