"""``pointsman estimate``: one workload on one configuration."""

from __future__ import annotations

import argparse

from pointsman.cli import options, progress

NAME = "estimate"
HELP = "price one workload on one configuration: the ledger and the summary that decide takes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    options.add_reading(parser)
    options.add_fleet(parser)
    parser.add_argument(
        "--policy",
        default="queue_aware",
        metavar="NAME",
        help=f"{options.POLICY_HELP} (default: queue_aware, the lesson's least_loaded)",
    )
    options.add_slack(parser)
    options.add_seed(parser)
    options.add_output(parser, printed="json")


def run(arguments: argparse.Namespace) -> int:
    """Estimate; 0."""
    from pointsman.comparison.estimate import estimate
    from pointsman.report.estimate import estimate_text

    policy = options.policy_of(arguments.policy, arguments.slack_ms)
    fleet = options.fleet_of(arguments)
    workload = options.read_trace(arguments)
    with progress.steps(1, len(workload)) as begin:
        begin(policy.label)
        result = estimate(workload, policy, fleet, arguments.seed)
    reading = options.read_options(arguments)
    options.deliver(arguments, lambda form: estimate_text(result, reading, form))
    return 0
