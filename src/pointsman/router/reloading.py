"""The configuration file, read again when it has changed or when somebody says so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from pointsman.core.errors import PointsmanError
from pointsman.core.files import Stamp, stamp_of
from pointsman.router.edge import Complain
from pointsman.router.replica_options import ReplicaOptions
from pointsman.router.roster import Roster

LOOK_S = 1.0


@dataclass(frozen=True, slots=True)
class Config:
    """What a file says. ``replicas``: None where flags name them. ``restart_keys``: those whose
    values are other than the router was started with."""

    replicas: Sequence[ReplicaOptions] | None
    restart_keys: Sequence[str] = ()


class ConfigSource(Protocol):
    """A file that can be read again."""

    @property
    def path(self) -> Path:
        """Where it lies."""

    @property
    def stamp(self) -> Stamp:
        """Of when it was read last."""

    def read(self) -> Config:
        """All of it, checked. Raises PointsmanError."""


class Reloading:
    """Looks at the file about once a second, and has the roster follow it.

    A file that is being written is let alone until two looks find it the same: half a file may be
    a file of fewer replicas.
    """

    def __init__(self, source: ConfigSource, roster: Roster, complain: Complain) -> None:
        self._source = source
        self._roster = roster
        self._complain = complain
        self._seen = source.stamp
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look from now on."""
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def reload(self) -> None:
        """Read the file now. One that is broken changes nothing."""
        if self._timer is None:  # not started yet, or stopped
            return
        try:
            config = self._source.read()
        except PointsmanError as error:
            self._complain(f"the configuration stays as it was: {error}")
            return
        where = str(self._source.path)
        if config.restart_keys:
            keys = ", ".join(config.restart_keys)
            self._complain(f"{where}: {keys}: changed; that counts when the router is restarted")
        if config.replicas is not None:
            self._roster.follow(where, config.replicas)

    def _look(self) -> None:
        self.start()
        before, self._seen = self._seen, stamp_of(self._source.path)
        if before == self._seen != self._source.stamp:
            self.reload()
