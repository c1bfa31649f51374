"""``pointsman policies``: what can route, and how much load a fleet holds under each rule."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from pointsman.cli import options, policies_bench

NAME = "policies"
HELP = "list the routing policies, each with its rule, its source and what it reads"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags, and the subcommand."""
    options.add_output(parser)
    parser.set_defaults(act=_list)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    policies_bench.add_parser(actions)


def run(arguments: argparse.Namespace) -> int:
    """List them, or run the subcommand; the exit code."""
    action: Callable[[argparse.Namespace], int] = arguments.act
    return action(arguments)


def _list(arguments: argparse.Namespace) -> int:
    from pointsman.policies.catalogue import POLICIES
    from pointsman.report.policies import policies_text

    options.deliver(arguments, lambda form: policies_text(list(POLICIES.values()), form))
    return 0
