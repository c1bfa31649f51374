"""``pointsman completion``: a script that lets a shell complete commands, flags and choices."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pointsman.cli.completion_words import Values

NAME = "completion"
HELP = "print a script that completes commands, flags and choices in a shell"

COUNTS = (1, 2, 4, 8)  # replicas of the groups that are offered
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


def _known_names() -> dict[str, Values]:
    """What flags take that have no choices of their own, by their names or their metavars."""
    from pointsman.cli.completion_words import Values
    from pointsman.costs.devices import SHORT_NAMES, known_devices
    from pointsman.costs.models import known_models
    from pointsman.policies.catalogue import POLICIES

    parameters = (f"{name}:{each}=" for name, rule in POLICIES.items() for each in rule.parameters)
    devices = (*SHORT_NAMES, *known_devices())
    return {
        "--policy": Values((*POLICIES, *parameters)),
        "--baseline": Values(tuple(POLICIES)),
        "--model": Values(tuple(known_models())),
        "--device": Values(devices),
        "FLEET": Values(tuple(_fleets(devices)), or_toml=True),
    }


def _fleets(devices: Iterable[str]) -> Iterator[str]:
    """Groups of one word, and what may follow each."""
    from pointsman.fleet.groups import ROLES
    from pointsman.fleet.words import SHAPES

    groups = [f"{count}x{device}" for device in devices for count in COUNTS]
    yield from groups
    for group in groups:
        yield from (f"{group}:{shape}=" for shape in SHAPES)
        yield from (f"{group}:{role}" for role in ROLES)
