"""``pointsman compare``: one workload through several policies."""

from __future__ import annotations

import argparse

from pointsman.cli import options, progress

NAME = "compare"
HELP = "run one workload through several routing policies and say which to take"

DEFAULT_POLICIES = ("round_robin", "queue_aware", "locality_aware")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    options.add_reading(parser)
    options.add_fleet(parser)
    parser.add_argument(
        "--policy",
        action="append",
        metavar="NAME",
        help=f"{options.POLICY_HELP}; repeat it (default: {', '.join(DEFAULT_POLICIES)})",
    )
    options.add_slack(parser)
    options.add_seed(parser)
    options.add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare; 0."""
    from pointsman.comparison.policies import compare_policies
    from pointsman.report.comparison import comparison_text

    policies = options.policies_of(arguments.policy or DEFAULT_POLICIES, arguments.slack_ms)
    fleet = options.fleet_of(arguments)
    workload = options.read_trace(arguments)
    with progress.steps(len(policies), len(workload)) as begin:
        comparison = compare_policies(
            workload, policies, fleet, arguments.seed, lambda policy: begin(policy.label)
        )
    reading = options.read_options(arguments)
    options.deliver(arguments, lambda form: comparison_text(comparison, reading, form))
    return 0
