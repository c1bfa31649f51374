"""The flags that show a run over time: ``--timeline`` and ``--gantt`` (docs/timeline.md)."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.cli import options

if TYPE_CHECKING:
    from pointsman.policies.policy import Policy
    from pointsman.report.timeline.story import Story
    from pointsman.sim.fleet_run import FleetRun

TIMELINE_HELP = (
    "write a trace file besides, for ui.perfetto.dev or chrome://tracing; gzipped where the name"
    " ends in .gz"
)


def add_timeline(parser: argparse.ArgumentParser) -> None:
    """``--timeline``."""
    parser.add_argument("--timeline", type=Path, metavar="FILE", help=TIMELINE_HELP)


def add_gantt(parser: argparse.ArgumentParser) -> None:
    """``--gantt``."""
    parser.add_argument(
        "--gantt",
        action="store_true",
        help="print a chart of characters besides, of at most 40 requests (not with json, csv)",
    )


def check_gantt(arguments: argparse.Namespace) -> None:
    """Refuse a chart within JSON or CSV, before the work."""
    from pointsman.core.errors import InputError

    if arguments.gantt and arguments.format in ("json", "csv"):
        raise InputError(
            f"--gantt goes with the table, and --format is {arguments.format};"
            f" expected --output FILE.{arguments.format} in its place"
        )


class Stories:
    """Those of the runs of a command, in the order in which its results are."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._of: dict[str, Story] = {}

    @property
    def are_wanted(self) -> bool:
        """Whether anybody looks at them."""
        return self._arguments.timeline is not None or getattr(self._arguments, "gantt", False)

    def keep(self, run: FleetRun) -> None:
        """Keep the story of a run on a fleet that batches, if anybody looks at it."""
        from pointsman.report.timeline.simulated import story_of_fleet

        if self.are_wanted:
            self._of[run.policy.label] = story_of_fleet(run)

    def add(self, story: Story) -> None:
        """Keep a story that was made elsewhere."""
        self._of[story.label] = story

    def deliver(self, policies: Sequence[Policy] | None = None) -> None:
        """Print the chart and write the file, as far as asked; ``policies``: in their order."""
        names = list(self._of) if policies is None else [policy.label for policy in policies]
        stories = [self._of[name] for name in names if name in self._of]
        if getattr(self._arguments, "gantt", False):
            from pointsman.report.gantt import gantt_text

            sys.stdout.write("\n" + gantt_text(stories))
        if self._arguments.timeline is not None:
            from pointsman.report.timeline.file import write_timeline

            said = options.will_be_written(self._arguments.timeline)
            for note in write_timeline(stories, self._arguments.timeline):
                options.say(f"timeline of {note}")
            options.say(f"{said}; open it at https://ui.perfetto.dev")
