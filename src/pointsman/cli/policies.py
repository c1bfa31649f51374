"""``pointsman policies``: what can route."""

from __future__ import annotations

import argparse

from pointsman.cli import options

NAME = "policies"
HELP = "list the routing policies, each with its rule, its source and what it reads"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    options.add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """List them; 0."""
    from pointsman.policies.catalogue import POLICIES
    from pointsman.report.policies import policies_text

    options.deliver(arguments, lambda form: policies_text(list(POLICIES.values()), form))
    return 0
