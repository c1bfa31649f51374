"""``--config FILE``: every flag of a command as a key of a TOML file; flags win over it.

A key is the flag's name with underscores. Paths are taken from the file's folder.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pointsman.core.errors import unknown_name
from pointsman.core.files import read_file

# Reads what is no flag: of a table's value, where it stands, and the file's folder.
ReadTable = Callable[[object, str, Path], Any]


class ConfigFile(argparse.Action):
    """The flag that names the file; a parser takes it before all others, so that they win.

    ``tables``: keys that stand for no flag, and how they are read. Of ``instead`` a table takes the
    place: a flag that has no key.
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
        from pointsman.cli.config_values import value_of
        from pointsman.costs.fields import toml_table

        path = Path(values)
        where, flags = str(path), self.flags_of(parser)
        for key, value in toml_table(read_file(path), where).items():
            if key in self.tables:
                setattr(namespace, key, self.tables[key](value, where, path.parent))
            elif key in flags:
                setattr(namespace, flags[key].dest, value_of(flags[key], value, (where, key), path))
            else:
                raise unknown_name(where, "key", key, [*flags, *self.tables])
        setattr(namespace, self.dest, path)

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


def key_of(action: argparse.Action) -> str:
    """The key of a flag."""
    return action.option_strings[0].lstrip("-").replace("-", "_")
