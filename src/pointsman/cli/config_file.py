"""``--config FILE``: every flag of a command as a key of a TOML file; flags win over it.

A key is the flag's name with underscores. Paths are taken from the file's folder.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pointsman.core.errors import unknown_name
from pointsman.core.files import Stamp, read_file, stamp_of

# Reads what is no flag: of a table's value, where it stands, and the file's folder.
ReadTable = Callable[[object, str, Path], Any]


class ConfigFile(argparse.Action):
    """The flag that names the file; a parser takes it before all others, so that they win.

    ``tables``: keys that stand for no flag, and how they are read. Of ``instead`` a table takes the
    place: a flag that has no key. The ``FlagFile`` is kept as ``config_file``.
    """

    comes_first = True

    def __init__(
        self, tables: dict[str, ReadTable], instead: Sequence[str] = (), **named: Any
    ) -> None:
        super().__init__(**named)
        self.tables = tables
        self._instead = instead

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Put the file's values where the flags will put theirs."""
        path = Path(values)
        file = FlagFile(path, self.flags_of(parser), self.tables)
        for name, value in file.read().items():
            setattr(namespace, name, value)
        setattr(namespace, self.dest, path)
        namespace.config_file = file

    def flags_of(self, parser: argparse.ArgumentParser) -> dict[str, argparse.Action]:
        """The flags that may stand in a file, by key."""
        return {
            key_of(action): action
            for action in parser._actions
            if action.option_strings
            and action is not self
            and key_of(action) not in self._instead
            and not isinstance(action, argparse._HelpAction)
        }


class FlagFile:
    """A file of flags and tables, to be read again and again."""

    def __init__(
        self, path: Path, flags: dict[str, argparse.Action], tables: dict[str, ReadTable]
    ) -> None:
        self.path = path
        self.stamp: Stamp = None  # of when it was read last
        self._flags = flags
        self._tables = tables
        self._first: dict[str, Any] | None = None

    def read(self) -> dict[str, Any]:
        """Its values as the flags would give them, by their place in the namespace.

        Raises InputError for what is no such file, MachineError where it cannot be read.
        """
        from pointsman.cli.config_values import value_of
        from pointsman.costs.fields import toml_table

        path, where = self.path, str(self.path)
        self.stamp = stamp_of(path)
        found: dict[str, Any] = {}
        for key, value in toml_table(read_file(path), where).items():
            if key in self._tables:
                found[key] = self._tables[key](value, where, path.parent)
            elif key in self._flags:
                flag = self._flags[key]
                found[flag.dest] = value_of(flag, value, (where, key), path)
            else:
                raise unknown_name(where, "key", key, [*self._flags, *self._tables])
        if self._first is None:
            self._first = found
        return found

    def changed_keys(self, now: dict[str, Any], running: argparse.Namespace) -> list[str]:
        """The flags whose values are other ones than when the file was first read.

        Those that were given on the command line are not: there the file's value never counted.
        """
        assert self._first is not None, "read before"
        first = self._first
        return [
            key
            for key, flag in self._flags.items()
            if now.get(flag.dest, flag.default) != first.get(flag.dest, flag.default)
            and first.get(flag.dest, flag.default) == getattr(running, flag.dest)
        ]


def key_of(action: argparse.Action) -> str:
    """The key of a flag."""
    return action.option_strings[0].lstrip("-").replace("-", "_")
