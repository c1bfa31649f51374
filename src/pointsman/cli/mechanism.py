"""``pointsman mechanism``: two ranks, fixed costs, round robin against least loaded."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.bench.mechanism.asked import add_flags, asked_of
from pointsman.cli import options

if TYPE_CHECKING:
    from pointsman.bench.mechanism.launch import Launch, Machine

NAME = "mechanism"
HELP = "round robin against least loaded on real ranks, one GPU each, or on the CPU"

RESULTS = "benchmarks/results/par_replica_routing_{label}.json"  # the lesson's


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "--ranks", type=int, default=2, metavar="N", help="processes (default: %(default)s)"
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="say what is missing and what would run, and run nothing (default: where the GPUs are"
        " missing)",
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--gpu", action="store_true", help="fail where the GPUs are missing")
    how.add_argument("--cpu", action="store_true", help="run on the CPU, marked as such")
    add_flags(parser)
    parser.add_argument(
        "--output",
        dest="result",
        type=Path,
        metavar="FILE",
        help=f"a file that is not there yet (default: {RESULTS.format(label='LABEL')})",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run it, or say what would run; 0. Raises MachineError where the run fails."""
    from pointsman.bench.mechanism.launch import Launch, found_machine
    from pointsman.core.checks import check_integer

    check_integer("mechanism", "--ranks", arguments.ranks, 2, 1024)
    asked = asked_of(arguments, Path())
    output = arguments.result or Path(RESULTS.format(label=asked.run_label))
    launch = Launch(asked_of(arguments, output), arguments.ranks, not arguments.cpu)
    return carry_out(launch, found_machine(), arguments)


def carry_out(launch: Launch, machine: Machine, arguments: argparse.Namespace) -> int:
    """Run what can be run on this machine; where only GPUs are missing, and nobody asked for
    them by name, the run is dry."""
    from pointsman.bench.missing import listed
    from pointsman.core.errors import MachineError
    from pointsman.report.mechanism import mechanism_table

    missing = launch.missing(machine)
    has_gpus = machine.gpus >= launch.ranks
    if arguments.dry_run or not (has_gpus or arguments.cpu or arguments.gpu):
        sys.stdout.write(_dry(launch, listed(missing)))
        return 0
    if missing or machine.torchrun is None:
        raise MachineError(
            f"mechanism: nothing was run; what is missing:\n{listed(missing)}".rstrip()
        )
    result = launch.run(machine.torchrun, options.say)
    sys.stdout.write(mechanism_table(result))
    return 0


def _dry(launch: Launch, missing: str) -> str:
    found = f"what is missing:\n{missing}" if missing else "nothing is missing\n"
    return (
        f"dry run: nothing was measured, nothing was written\n{found}"
        f"it would run:\n  {launch.shown()}\n"
    )
