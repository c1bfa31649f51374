"""``pointsman compare``: one workload through several policies."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pointsman.cli import fleet_flags, options, progress, timelines

if TYPE_CHECKING:
    from pointsman.workload.workload import Workload

NAME = "compare"
HELP = "run one workload through several routing policies and say which to take"

DEFAULT_POLICIES = ("round_robin", "queue_aware", "locality_aware")
FLEET_POLICIES = (
    "round_robin",
    "least_requests",
    "queue_aware",
    "locality_aware",
    "earliest_first_token",
    "fewest_misses",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    options.add_reading(parser)
    options.add_fleet(parser, batching=True)
    fleet_flags.add_fleet_flags(parser)
    parser.add_argument(
        "--policy",
        action="append",
        metavar="NAME",
        help=f"{options.POLICY_HELP}; repeat it (default: {', '.join(DEFAULT_POLICIES)}; with"
        f" --fleet {', '.join(FLEET_POLICIES)})",
    )
    options.add_slack(parser)
    options.add_seed(parser)
    options.add_output(parser)
    options.add_report(parser)
    timelines.add_timeline(parser)
    timelines.add_gantt(parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare; 0."""
    timelines.check_gantt(arguments)
    if arguments.fleet is not None:
        return _on_fleet(arguments)
    fleet_flags.check_no_fleet_flags(arguments)
    return _one_at_a_time(arguments)


def _one_at_a_time(arguments: argparse.Namespace) -> int:
    from pointsman.comparison.policies import compare_policies
    from pointsman.report.comparison import comparison_text
    from pointsman.report.document import comparison_document
    from pointsman.report.timeline.simulated import story_of_single
    from pointsman.sim.fifo import simulate

    policies = options.policies_of(arguments.policy or DEFAULT_POLICIES, arguments.slack_ms)
    fleet = options.fleet_of(arguments)
    workload = _read(arguments)
    with progress.steps(len(policies), len(workload)) as begin:
        comparison = compare_policies(
            workload, policies, fleet, arguments.seed, lambda policy: begin(policy.label)
        )
    reading = options.read_options(arguments)
    options.deliver(arguments, lambda form: comparison_text(comparison, reading, form))
    name = workload.source.name
    options.deliver_report(arguments, name, lambda: comparison_document(comparison, reading))
    stories = timelines.Stories(arguments)
    if stories.are_wanted:  # a run is a function of its arguments: this is the same one
        for result in comparison.results:
            stories.add(story_of_single(simulate(workload, result.policy, fleet, arguments.seed)))
        stories.deliver()
    return 0


def _read(arguments: argparse.Namespace) -> Workload:
    """The workload; refused, before it is simulated, where it is too long for a chart."""
    from pointsman.report.gantt import check_few_enough

    workload = options.read_trace(arguments)
    if arguments.gantt:
        check_few_enough(len(workload))
    return workload


def _on_fleet(arguments: argparse.Namespace) -> int:
    from pointsman.comparison.fleets import Trial, compare_on_fleet
    from pointsman.core.errors import InputError
    from pointsman.fleet.objectives import with_objectives
    from pointsman.report.fleet_comparison import fleet_comparison_text
    from pointsman.report.fleet_document import fleet_comparison_document
    from pointsman.sim.kernels import kernels_for

    if arguments.cache_hit_speedup is not None:
        raise InputError(
            "--cache-hit-speedup goes with --replicas; with --fleet a hit saves the prefill of the"
            " cached tokens"
        )
    if arguments.over_time and options.form_of(arguments) == "csv":
        raise InputError("--over-time does not go with csv; expected json or table")
    objectives = fleet_flags.objectives_of_flags(arguments)
    texts = arguments.policy or FLEET_POLICIES
    named = options.policies_of(texts, arguments.slack_ms)
    policies = with_objectives(texts, named, objectives)
    description = fleet_flags.described_fleet(arguments, objectives)
    stories = timelines.Stories(arguments)
    trial = Trial(
        objectives=objectives,
        seed=arguments.seed,
        baseline=arguments.baseline,
        over_time=bool(arguments.over_time or arguments.report),
        own_intervals=arguments.report is not None,
        on_run=stories.keep,
    )
    workload = _read(arguments)
    progress.announce_compilation(kernels_for(policies, description.conditions))
    with progress.steps(len(policies), len(workload)) as begin:
        comparison = compare_on_fleet(
            workload, policies, description, trial, lambda policy: begin(policy.label)
        )
    if arguments.format in ("json", "csv"):  # the table has them
        for warning in comparison.warnings:
            options.say(f"warning: {warning}")
    reading = options.read_options(arguments)
    options.deliver(arguments, lambda form: fleet_comparison_text(comparison, reading, form))
    name = workload.source.name
    options.deliver_report(arguments, name, lambda: fleet_comparison_document(comparison, reading))
    stories.deliver([result.policy for result in comparison.results])
    return 0
