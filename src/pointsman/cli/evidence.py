"""``pointsman evidence``: check files of measured results, print their schema."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pointsman.cli import options

NAME = "evidence"
HELP = "check files of measured results, or print the schema of ours"

EXIT_NOT_SOUND = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the two subcommands and their flags."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_check(actions)
    text = "print the JSON Schema of evidence files"
    schema = actions.add_parser("schema", help=text, description=text)
    schema.set_defaults(act=_schema)


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand; the exit code."""
    action: Callable[[argparse.Namespace], int] = arguments.act
    return action(arguments)


def _add_check(actions: Any) -> None:
    text = "say what files of results lack, whoever wrote them (exit code 2 if anything)"
    check = actions.add_parser("check", help=text, description=text)
    check.add_argument("files", nargs="+", type=Path, metavar="FILE", help="JSON of one result")
    options.add_output(check)
    check.set_defaults(act=_check)


def _check(arguments: argparse.Namespace) -> int:
    from pointsman.evidence.checking import check_file
    from pointsman.report.evidence import check_text

    reports = [check_file(path) for path in arguments.files]
    options.deliver(arguments, lambda form: check_text(reports, form))
    return 0 if all(report.is_sound for report in reports) else EXIT_NOT_SOUND


def _schema(_: argparse.Namespace) -> int:
    from pointsman.evidence.schema import schema_text

    sys.stdout.write(schema_text())
    return 0
