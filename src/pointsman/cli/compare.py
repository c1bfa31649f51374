"""``pointsman compare``: one workload through several policies."""

from __future__ import annotations

import argparse

from pointsman.cli import options

NAME = "compare"
HELP = "Run one workload through several routing policies and say which to take."

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
    parser.add_argument(
        "--slack-ms", type=float, metavar="MS", help="of locality-aware policies (5)"
    )
    options.add_seed(parser)
    options.add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare; 0."""
    from pointsman.comparison.policies import compare_policies
    from pointsman.report.comparison import comparison_text

    names = arguments.policy or DEFAULT_POLICIES
    policies = [options.policy_of(name, arguments.slack_ms) for name in names]
    fleet = options.fleet_of(arguments)
    workload = options.read_trace(arguments)
    comparison = compare_policies(workload, policies, fleet, arguments.seed)
    reading = options.read_options(arguments)
    options.deliver(arguments, lambda form: comparison_text(comparison, reading, form))
    return 0
