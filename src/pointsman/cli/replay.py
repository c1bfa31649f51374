"""``pointsman replay``: the choices of a decision log, made again."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.cli import fleet_flags, options, progress, timelines
from pointsman.core.errors import InputError

if TYPE_CHECKING:
    from pointsman.comparison.fleets import FleetComparison
    from pointsman.dispatch.log_file import Log
    from pointsman.policies.policy import Policy

NAME = "replay"
HELP = "call the policy of a decision log again, or another one, and list what differs"

EXIT_DIFFERS = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "logs",
        nargs="+",
        type=Path,
        metavar="LOG",
        help="written by serve --decision-log; of one run one file, some or all, in any order",
    )
    parser.add_argument(
        "--policy",
        action="append",
        metavar="NAME[:p=v]",
        help="another policy; repeat it; without it the log's own, which has to agree (exit code 1"
        " if not)",
    )
    parser.add_argument(
        "--fleet",
        metavar="FLEET",
        help="simulate the log's requests on such a fleet under all policies besides, as"
        f" compare does: {fleet_flags.FLEET_HELP}",
    )
    parser.add_argument(
        "--costs", type=Path, metavar="FILE", help="of --fleet: what pointsman calibrate wrote"
    )
    fleet_flags.add_fleet_flags(parser)
    options.add_seed(parser)
    options.add_output(parser)
    options.add_report(parser)
    timelines.add_timeline(parser)


def run(arguments: argparse.Namespace) -> int:
    """Replay; 0, or 1 when the log's own policy disagrees with the log."""
    from pointsman.core.files import check_is_file
    from pointsman.dispatch.ledger import ALWAYS_NEEDED
    from pointsman.dispatch.log_file import read_log
    from pointsman.policies.catalogue import policy_named
    from pointsman.replay.replay import replay_other, replay_same
    from pointsman.report.replay import replays_document, replays_text
    from pointsman.report.timeline.recorded import story_of_log

    _check_flags(arguments)
    others = [policy_named(text) for text in arguments.policy or ()]
    for path in arguments.logs:
        check_is_file(path)
    log = read_log(*arguments.logs)
    progress.announce_accounts(ALWAYS_NEEDED)
    results = [replay_other(log, other) for other in others] or [replay_same(log)]
    stories = timelines.Stories(arguments)
    if stories.are_wanted:
        stories.add(story_of_log(log, f"recorded: {results[0].recorded_policy}"))
    effect = None
    if arguments.fleet is not None:
        effect = _effect(arguments, log, others, stories)
    options.deliver(arguments, lambda form: replays_text(results, form, effect))
    name = arguments.logs[0].name
    options.deliver_report(arguments, name, lambda: replays_document(results, effect))
    stories.deliver()
    return EXIT_DIFFERS if not others and results[0].differences else 0


def _check_flags(arguments: argparse.Namespace) -> None:
    if arguments.fleet is None:
        for name in (*fleet_flags.FLEET_ONLY, "costs"):
            if getattr(arguments, name) is not None:
                raise InputError(f"--{name.replace('_', '-')} goes with --fleet")
    elif not arguments.policy:
        raise InputError("--fleet compares the log's policy with another; expected --policy NAME")
    elif options.form_of(arguments) == "csv":
        raise InputError("--fleet does not go with csv; expected json or table")


def _effect(
    arguments: argparse.Namespace, log: Log, others: Sequence[Policy], stories: timelines.Stories
) -> FleetComparison:
    """All policies on the log's requests, on the fleet that the flags describe."""
    from pointsman.comparison.fleets import Trial, compare_on_fleet
    from pointsman.fleet.objectives import with_objectives
    from pointsman.replay.replay import recorded_policy
    from pointsman.replay.workload import workload_of
    from pointsman.sim.kernels import kernels_for

    objectives = fleet_flags.objectives_of_flags(arguments)
    recorded = recorded_policy(log.head)
    policies = [recorded, *with_objectives(arguments.policy, others, objectives)]
    description = fleet_flags.described_fleet(arguments, objectives)
    trial = Trial(
        objectives=objectives,
        seed=arguments.seed,
        baseline=arguments.baseline or recorded.label,
        over_time=bool(arguments.over_time or arguments.report),
        own_intervals=arguments.report is not None,
        on_run=stories.keep,
    )
    workload = workload_of(log)
    progress.announce_compilation(kernels_for(policies, description.conditions))
    with progress.steps(len(policies), len(workload)) as begin:
        return compare_on_fleet(
            workload, policies, description, trial, lambda policy: begin(policy.label)
        )
