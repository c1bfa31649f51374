"""What is asked of a mechanism run, as the flags of the module that torchrun starts."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from pointsman.core.checks import check_integer, check_number
from pointsman.core.errors import InputError, unknown_name, wrong_value

MODE = "replica_routing"
DTYPES = ("bfloat16", "float16", "float32")
MOST_DIM = 1 << 16
MOST_ROUNDS = 100_000
WHERE = "mechanism"
SAYS = "pointsman: "  # how each line of rank 0 begins

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismAsked:
    """One run. The defaults are the lesson's (serving replica routing, step 5.1).

    Raises InputError for a value that no run can have.
    """

    output: Path
    mode: str = MODE
    compute_dim: int = 768  # one unit of cost is one product of matrices of so many rows
    dtype: str = "bfloat16"
    warmup: int = 2
    repeats: int = 5
    run_label: str = "default"
    workload_id: str = "par-replica-load-routing"
    timeout_s: float = 300.0  # how long a rank waits for another one before the run has failed

    def __post_init__(self) -> None:
        for name, value, known in (("mode", self.mode, (MODE,)), ("dtype", self.dtype, DTYPES)):
            if value not in known:
                raise unknown_name(WHERE, name, value, known)
        check_integer(WHERE, "--compute-dim", self.compute_dim, 1, MOST_DIM)
        check_integer(WHERE, "--warmup", self.warmup, 0, MOST_ROUNDS)
        check_integer(WHERE, "--repeats", self.repeats, 1, MOST_ROUNDS)
        check_number(WHERE, "--timeout-s", self.timeout_s, above=0.0)
        if not _LABEL.fullmatch(self.run_label):
            wanted = "letters, digits, '.', '_' and '-', for it names a file"
            raise wrong_value(WHERE, "--run-label", self.run_label, wanted)
        if not self.workload_id:
            raise wrong_value(WHERE, "--workload-id", self.workload_id, "a name")

    def words(self) -> list[str]:
        """The flags that ask for this run."""
        return [
            *("--mode", self.mode),
            *("--compute-dim", str(self.compute_dim)),
            *("--dtype", self.dtype),
            *("--warmup", str(self.warmup)),
            *("--repeats", str(self.repeats)),
            *("--run-label", self.run_label),
            *("--workload-id", self.workload_id),
            *("--timeout-s", f"{self.timeout_s:g}"),
            *("--output", str(self.output)),
        ]


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Every flag but ``--output``; one that is left out stays out of the namespace."""
    flags = parser.add_argument_group("the run", argument_default=argparse.SUPPRESS)
    flags.add_argument("--mode", metavar="NAME", help=f"{MODE}, the only one (default)")
    flags.add_argument(
        "--compute-dim",
        type=int,
        metavar="N",
        help="a unit of cost is one product of two N x N matrices (default: 768)",
    )
    flags.add_argument("--dtype", metavar="NAME", help=f"{', '.join(DTYPES)} (default: bfloat16)")
    flags.add_argument(
        "--warmup", type=int, metavar="N", help="rounds before those that count (default: 2)"
    )
    flags.add_argument("--repeats", type=int, metavar="N", help="rounds that count (default: 5)")
    flags.add_argument("--run-label", metavar="NAME", help="of this run (default: default)")
    flags.add_argument(
        "--workload-id", metavar="NAME", help="of the costs (default: par-replica-load-routing)"
    )
    flags.add_argument(
        "--timeout-s",
        type=float,
        metavar="S",
        help="the longest that a rank waits for another one (default: 300)",
    )


def asked_of(arguments: argparse.Namespace, output: Path) -> MechanismAsked:
    """The run that ``add_flags`` declared."""
    names = (set(MechanismAsked.__slots__) - {"output"}) & set(vars(arguments))
    return MechanismAsked(output=output, **{name: getattr(arguments, name) for name in names})


def asked_by(words: Sequence[str]) -> MechanismAsked:
    """The run that the words after the module's name ask for; InputError where they are none."""
    parser = _Flags(prog=WHERE, allow_abbrev=False)
    add_flags(parser)
    parser.add_argument("--output", type=Path, metavar="FILE", help="a file that is not there yet")
    arguments, rest = parser.parse_known_args(words)
    if rest:
        raise unknown_name(WHERE, "flag", rest[0], parser.known_flags())
    if arguments.output is None:
        raise InputError(f"{WHERE}: --output is missing; expected a file that is not there yet")
    return asked_of(arguments, arguments.output)


class _Flags(argparse.ArgumentParser):
    """Raises where its parent prints and exits: several ranks read the same words."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{WHERE}: {message}")

    def known_flags(self) -> list[str]:
        return [flag for flag in self._option_string_actions if flag.startswith("--")]


def check_is_new(output: Path) -> None:
    """Refuse a path where something is already: results are never overwritten."""
    if os.path.lexists(output):
        raise InputError(
            f"{output}: is already there, and results are never overwritten; expected a new name,"
            " such as with another --run-label"
        )
