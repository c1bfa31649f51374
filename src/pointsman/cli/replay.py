"""``pointsman replay``: the choices of a decision log, made again."""

from __future__ import annotations

import argparse
from pathlib import Path

from pointsman.cli import options

NAME = "replay"
HELP = "call the policy of a decision log again, or another one, and list what differs"

EXIT_DIFFERS = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("log", type=Path, metavar="LOG", help="written by serve --decision-log")
    parser.add_argument(
        "--policy",
        metavar="NAME[:p=v]",
        help="another policy; without it the log's own, which has to agree (exit code 1 if not)",
    )
    options.add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Replay; 0, or 1 when the log's own policy disagrees with the log."""
    from pointsman.core.files import check_is_file
    from pointsman.dispatch.log_file import read_log
    from pointsman.policies.catalogue import policy_named
    from pointsman.replay.replay import replay_other, replay_same
    from pointsman.report.replay import replay_text

    other = policy_named(arguments.policy) if arguments.policy else None
    check_is_file(arguments.log)
    log = read_log(arguments.log)
    result = replay_same(log) if other is None else replay_other(log, other)
    options.deliver(arguments, lambda form: replay_text(result, form))
    return EXIT_DIFFERS if other is None and result.differences else 0
