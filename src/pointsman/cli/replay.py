"""``pointsman replay``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pointsman.replay.replay import Replay

NAME = "replay"
HELP = "call the policy of a decision log again, or another one, and list what differs"

EXIT_DIFFERS = 1
SHOWN_DIFFERENCES = 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("log", type=Path, metavar="LOG", help="written by serve --decision-log")
    parser.add_argument(
        "--policy",
        metavar="NAME[:p=v]",
        help="another policy; without it the log's own, which has to agree (exit code 1 if not)",
    )
    parser.add_argument(
        "--format", choices=("table", "json"), default="table", help="default: %(default)s"
    )
    parser.add_argument("--output", type=Path, metavar="FILE", help="write there, not to stdout")


def run(arguments: argparse.Namespace) -> int:
    """Replay; the exit code."""
    from pointsman.core.files import whole_file
    from pointsman.dispatch.log_file import read_log
    from pointsman.policies.catalogue import policy_named
    from pointsman.replay.replay import replay_other, replay_same

    other = policy_named(arguments.policy) if arguments.policy else None
    log = read_log(arguments.log)
    result = replay_same(log) if other is None else replay_other(log, other)
    text = _json(result) if arguments.format == "json" else _table(result)
    if arguments.output is None:
        sys.stdout.write(text)
    else:
        with whole_file(arguments.output) as file:
            file.write(text.encode())
    return EXIT_DIFFERS if other is None and result.differences else 0


def _json(result: Replay) -> str:
    import msgspec

    facts = {**msgspec.to_builtins(result), "agreeing": result.agreeing}
    return msgspec.json.format(msgspec.json.encode(facts), indent=2).decode() + "\n"


def _table(result: Replay) -> str:
    lines = [
        f"recorded: {result.recorded_policy}",
        f"replayed: {result.replayed_policy}",
        f"choices that agree: {result.agreeing} of {result.choices}",
    ]
    if result.unfinished:
        lines.append(f"choices without an outcome: {result.unfinished}")
    if result.truncated_lines:
        lines.append("the last line was cut off, and is left out")
    if result.differences:
        lines += ["", *_rows(result)]
    hidden = len(result.differences) - SHOWN_DIFFERENCES
    if hidden > 0:
        lines.append(f"... and {hidden} more; --format json lists all")
    return "\n".join(lines) + "\n"


def _rows(result: Replay) -> list[str]:
    head = ("choice", "at ms", "request", "recorded", "replayed")
    cells: list[Sequence[str]] = [head]
    for item in result.differences[:SHOWN_DIFFERENCES]:
        recorded = f"{item.recorded_replica} ({item.recorded_reason})"
        replayed = f"{item.replayed_replica} ({item.replayed_reason})"
        where = (str(item.sequence), f"{item.time_ms:.1f}", item.request_id)
        cells.append((*where, recorded, replayed))
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
