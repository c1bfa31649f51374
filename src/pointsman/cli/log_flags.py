"""The flags of the router's decision log."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.core.errors import InputError

if TYPE_CHECKING:
    from pointsman.dispatch.log_rotation import Rotation


def add_log(parser: argparse.ArgumentParser) -> None:
    """Declare the flags. Their defaults are those of Rotation; a test compares them."""
    group = parser.add_argument_group("decision log")
    group.add_argument(
        "--decision-log",
        type=Path,
        metavar="FILE",
        help="a new file for every choice, the view it was made from, and its outcome",
    )
    group.add_argument(
        "--decision-log-mib",
        type=int,
        metavar="N",
        help="begin a new file after so many MiB, and number those before it; 0: never"
        " (default: 256)",
    )
    group.add_argument(
        "--decision-log-keep",
        type=int,
        metavar="K",
        help="how many files are kept, the one being written among them; 0: all (default: 0)",
    )


def rotation_of(arguments: argparse.Namespace) -> Rotation:
    """What the flags say of files. Raises InputError for what is none, or without a log."""
    from pointsman.dispatch.log_rotation import Rotation

    given = {"mib": arguments.decision_log_mib, "keep": arguments.decision_log_keep}
    given = {name: value for name, value in given.items() if value is not None}
    if given and arguments.decision_log is None:
        name = next(iter(given))
        raise InputError(f"--decision-log-{name}: is for --decision-log, which is not given")
    return Rotation(**given)
