"""``pointsman estimate``."""

from __future__ import annotations

import argparse

NAME = "estimate"
HELP = "to come"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""


def run(arguments: argparse.Namespace) -> int:
    """Run it; the exit code."""
    raise NotImplementedError
