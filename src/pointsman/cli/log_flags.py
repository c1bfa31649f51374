"""The flags of the router's decision log."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.core.checks import MOST_INT32, check_integer
from pointsman.core.errors import InputError

if TYPE_CHECKING:
    from pointsman.dispatch.log_rotation import Rotation

MOST_MIB = 1 << 20

_MIB, _KEEP = "--decision-log-mib", "--decision-log-keep"


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
        _MIB,
        type=int,
        metavar="N",
        help="begin a new file after so many MiB, and number those before it; 0: never"
        " (default: 256)",
    )
    group.add_argument(
        _KEEP,
        type=int,
        metavar="K",
        help="how many files are kept, the one being written among them; 0: all (default: 0)",
    )


def rotation_of(arguments: argparse.Namespace) -> Rotation:
    """What the flags say of files. Raises InputError for what is none, or without a log."""
    from pointsman.dispatch.log_rotation import Rotation

    mib, keep = arguments.decision_log_mib, arguments.decision_log_keep
    for flag, value, most in ((_MIB, mib, MOST_MIB), (_KEEP, keep, MOST_INT32)):
        if value is not None:
            check_integer("serve", flag, value, 0, most=most)
            if arguments.decision_log is None:
                raise InputError(f"{flag}: is for --decision-log, which is not given")
    default = Rotation()
    return Rotation(
        most_bytes=default.most_bytes if mib is None else mib << 20,
        keep=default.keep if keep is None else keep,
    )
