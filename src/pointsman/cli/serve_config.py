"""The file of ``serve --config``, as the router reads it again."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.cli.config_file import FlagFile
from pointsman.core.files import Stamp

if TYPE_CHECKING:
    from pointsman.router.reloading import Config
    from pointsman.router.replica_options import ReplicaOptions


class ServeConfig:
    """Of the arguments that the router was started with, and how their replicas are read."""

    def __init__(
        self,
        file: FlagFile,
        arguments: argparse.Namespace,
        replicas_of: Callable[[argparse.Namespace], list[ReplicaOptions]],
    ) -> None:
        self._file = file
        self._arguments = arguments
        self._replicas_of = replicas_of

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self._file.path

    @property
    def stamp(self) -> Stamp:
        """Of when it was read last."""
        return self._file.stamp

    def read(self) -> Config:
        """All of it, checked. Raises PointsmanError."""
        from pointsman.router.reloading import Config

        started = self._arguments
        values = self._file.read()
        replicas = None
        flags = (started.replica_urls, started.prefill_urls, started.decode_urls)
        if all(urls is None for urls in flags):
            now = argparse.Namespace(**{**vars(started), "replicas": values.get("replicas", [])})
            replicas = self._replicas_of(now)
        return Config(replicas, self._file.changed_keys(values, started))
