"""``pointsman completion``: a script that lets a shell complete commands, flags and choices."""

from __future__ import annotations

import argparse
import sys

NAME = "completion"
HELP = "print a script that completes commands, flags and choices in a shell"

SHELLS = ("bash", "zsh", "fish")
_HOW = """\
how to load it, in the shell's own start file to keep it:
  bash  source <(pointsman completion bash)
  zsh   source <(pointsman completion zsh)      after compinit
  fish  pointsman completion fish | source

The script is of this version: print it again after an upgrade.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.epilog = _HOW
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "shell", choices=SHELLS, metavar="SHELL", help="bash, zsh or fish, which will read it"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print it; 0."""
    from pointsman.cli.completion_scripts import script_for
    from pointsman.cli.completion_words import command_tree
    from pointsman.cli.main import build_parser

    sys.stdout.write(script_for(arguments.shell, command_tree(build_parser(), _known_names())))
    return 0


def _known_names() -> dict[str, tuple[str, ...]]:
    """What flags take that have no choices of their own, by what they are called."""
    from pointsman.costs.devices import known_devices
    from pointsman.costs.models import known_models
    from pointsman.policies.catalogue import POLICIES

    policies = tuple(POLICIES)
    return {
        "--policy": policies,
        "--baseline": policies,
        "--model": tuple(known_models()),
        "--device": tuple(known_devices()),
    }
