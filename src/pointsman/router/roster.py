"""The replicas that the configuration file names, and what becomes of them when it names others.

Only what has become different in the file since it was last read is done, so that what the admin
API did to a replica stands until the file says something else of that replica:

    the file says                            the replica is there       it is draining    it is gone
    a new one, or other facts or events      drained, and added anew    so too            added
    other weight, models, metrics            goes on with these         added anew        added
    nothing of it any more                   drained and removed        removed           -
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pointsman.router.membership import Membership, MembershipError
from pointsman.router.replica_options import ReplicaOptions
from pointsman.router.upstream import ReplicaAddress


class Roster:
    """The replicas of a file in a membership.

    ``say`` gets one line of what was done, and one for each replica that could not be added.
    """

    def __init__(
        self, membership: Membership, options: Sequence[ReplicaOptions], say: Callable[[str], None]
    ) -> None:
        self._membership = membership
        self._named = {each.address: each for each in options}
        self._say = say

    def follow(self, where: str, options: Sequence[ReplicaOptions]) -> None:
        """Do what the file says now. New ones come before others go."""
        named = {each.address: each for each in options}
        done = [
            self._take(where, each) for each in options if self._named.get(each.address) != each
        ]
        done += [self._part_with(address) for address in list(self._named) if address not in named]
        told = [each for each in done if each]
        if told:
            self._say(f"{where}: {'; '.join(told)}")

    def _take(self, where: str, options: ReplicaOptions) -> str:
        """Make the replica what the file says; in words."""
        members, url = self._membership, options.address.url
        there = members.at(options.address)
        try:
            if there is None:
                words = f"added {url}"
                members.enrol(options)
            elif there.is_draining or not options.is_same_engine_as(there.options):
                words = f"drains {url} and added it anew"
                members.renew(there.number, options)
            else:
                words = "" if options == there.options else f"changed {url}"
                members.tell(there.number, options)
        except MembershipError as error:  # the next reading of the file tries it again
            self._say(f"{where}: {url} is not added: {error}")
            return ""
        self._named[options.address] = options
        return words

    def _part_with(self, address: ReplicaAddress) -> str:
        del self._named[address]
        there = self._membership.at(address)
        if there is None:
            return ""
        self._membership.remove(there.number)
        return f"drains {address.url} and removes it"
