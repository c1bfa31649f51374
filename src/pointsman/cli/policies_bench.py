"""``pointsman policies bench``: how much load a fleet holds under each policy."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pointsman.cli import fleet_flags, options, progress

if TYPE_CHECKING:
    from pointsman.comparison.bench_traffic import Trace
    from pointsman.sim.conditions import Holding

HELP = "find how much load fleets hold under each policy at 95 %% goodput"
OBJECTIVES = ("ttft:3000", "tpot:60")
DEFAULT_FLEETS = "4,16,mixed,stale"
DEFAULT_TRAFFIC = "system,turns,unshared,long"

_DESCRIPTION = (
    f"{HELP.replace('%%', '%')}, in multiples of each trace's rate: generated traffic and recorded"
    " traces on several fleets; our rule against the best of the other projects' rules, cell by"
    " cell"
)


def add_parser(actions: Any) -> None:
    """Declare the subcommand and its flags."""
    parser = actions.add_parser("bench", help=HELP, description=_DESCRIPTION)
    _add_cells(parser)
    _add_question(parser)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a quarter of the traffic, and loads told apart to 5 %%: an hour becomes minutes",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="cells simulated at a time (default: %(default)s)",
    )
    options.add_output(parser, inherits=True)
    options.add_report(parser)
    parser.set_defaults(act=run)


def _add_cells(parser: argparse.ArgumentParser) -> None:
    """What is offered to which fleets."""
    parser.add_argument(
        "--trace",
        action="append",
        default=[],
        metavar="FILE",
        help="a recorded trace beside the generated traffic; repeat it",
    )
    parser.add_argument(
        "--traffic",
        default=DEFAULT_TRAFFIC,
        metavar="KIND,...",
        help="generated traffic, or none (default: %(default)s)",
    )
    parser.add_argument(
        "--fleet",
        default=DEFAULT_FLEETS,
        metavar="NAME,...",
        help="numbers of equal replicas, mixed (8, half of them slower) and stale (8, seen a second"
        " late) (default: %(default)s)",
    )


def _add_question(parser: argparse.ArgumentParser) -> None:
    """Which policies are held against what."""
    parser.add_argument(
        "--policy",
        action="append",
        metavar="NAME",
        help=f"{options.POLICY_HELP}; repeat it (default: all of them)",
    )
    parser.add_argument(
        "--goodput",
        nargs="+",
        default=list(OBJECTIVES),
        metavar="NAME:MS",
        help=f"objectives that a request must all meet (default: {' '.join(OBJECTIVES)})",
    )
    parser.add_argument(
        "--hold-ms",
        type=float,
        metavar="MS",
        help="report fewest_misses with holding apart: beyond so much waiting prefill",
    )
    parser.add_argument(
        "--hold-order",
        choices=fleet_flags.HOLD_ORDERS,
        help="which held request goes first (default: earliest_deadline)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Bench; 0."""
    from pointsman.comparison.bench_fleets import fleets_named
    from pointsman.comparison.load_bench import asked_for, bench, policies_of
    from pointsman.core.errors import wrong_value
    from pointsman.metrics.goodput import objectives_of
    from pointsman.policies.catalogue import POLICIES
    from pointsman.report.load_bench import bench_text
    from pointsman.report.load_bench_document import BenchReport, bench_document
    from pointsman.sim.kernels import kernels_for

    if arguments.jobs < 1:
        raise wrong_value("policies bench", "--jobs", arguments.jobs, "an integer >= 1")
    objectives = objectives_of(arguments.goodput)
    holding = _holding(arguments, objectives.ttft_ms)
    asked = asked_for(arguments.policy or list(POLICIES), objectives, holding, arguments.quick)
    fleets = fleets_named(arguments.fleet)
    traces = _traces(arguments)
    progress.announce_compilation(kernels_for(policies_of(asked).values()))
    results = bench(traces, fleets, asked, arguments.jobs)
    cells = []
    with progress.steps(len(traces) * len(fleets), progress.SIMULATED_REQUESTS) as begin:
        for fleet in fleets:
            for trace in traces:
                begin(f"{trace.name} on {fleet.name}")
                cells.append(next(results))
    report = BenchReport(asked, tuple(cells))
    options.deliver(arguments, lambda form: bench_text(report, form))
    options.deliver_report(arguments, "policies bench", lambda: bench_document(report))
    return 0


def _traces(arguments: argparse.Namespace) -> list[Trace]:
    from pointsman.comparison.bench_traffic import recorded_trace, traffic_named
    from pointsman.core.errors import InputError

    generated = traffic_named(arguments.traffic)
    recorded = [recorded_trace(path) for path in arguments.trace]
    traces: list[Trace] = [*generated, *recorded]
    names = [trace.name for trace in traces]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"policies bench: two traces are called {name}; expected each once")
    if not names:
        raise InputError("policies bench: no traffic; expected --traffic KIND or --trace FILE")
    return traces


def _holding(arguments: argparse.Namespace, ttft_ms: float | None) -> Holding | None:
    from pointsman.core.errors import InputError
    from pointsman.sim.conditions import Holding

    order = arguments.hold_order
    if arguments.hold_ms is None:
        if order is not None:
            raise InputError(f"--hold-order {order} goes with --hold-ms; expected both")
        return None
    holding = Holding(arguments.hold_ms, order or "earliest_deadline")
    return holding if ttft_ms is None else replace(holding, ttft_ms=ttft_ms)
