"""``pointsman decide``: accept, tune or reject a candidate."""

from __future__ import annotations

import argparse
from pathlib import Path

from pointsman.cli import options

NAME = "decide"
HELP = "accept, tune or reject a candidate against a baseline, with the reasons"

EXIT_REJECTED = 3

# The limits of the lesson on distributed inference.
DEFAULT_MAX_IMBALANCE_RATIO = 0.8
DEFAULT_MAX_COMM_RATIO = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "baseline",
        type=Path,
        metavar="BASELINE",
        help="JSON of `pointsman estimate`, one replica",
    )
    parser.add_argument(
        "candidate", type=Path, metavar="CANDIDATE", help="JSON of `pointsman estimate`"
    )
    parser.add_argument(
        "--max-imbalance-ratio",
        type=float,
        default=DEFAULT_MAX_IMBALANCE_RATIO,
        metavar="X",
        help="most (largest - smallest load) / mean load (default: %(default)s)",
    )
    parser.add_argument(
        "--max-comm-ratio",
        type=float,
        default=DEFAULT_MAX_COMM_RATIO,
        metavar="X",
        help="most communication over the baseline's time (default: %(default)s)",
    )
    parser.add_argument("--gate", action="store_true", help="exit with 3 when it is rejected")
    options.add_output(parser)


def run(arguments: argparse.Namespace) -> int:
    """Decide; 0, or 3 when rejected under ``--gate``."""
    from pointsman.core.errors import wrong_value
    from pointsman.report.decision import Decision, decision_text
    from pointsman.verdict.decide import REJECT, Candidate, Limits, decide
    from pointsman.verdict.figures import read_figures, same_workload

    for flag in ("max_imbalance_ratio", "max_comm_ratio"):
        value = getattr(arguments, flag)
        if not value >= 0:
            raise wrong_value("decide", f"--{flag.replace('_', '-')}", value, "a number >= 0")
    baseline, candidate = read_figures(arguments.baseline), read_figures(arguments.candidate)
    same_workload(baseline, candidate)
    verdict = decide(
        baseline.required("single_replica_time_ms"),
        Candidate(
            candidate.required("makespan_ms"),
            candidate.required("imbalance_ratio"),
            candidate.required("comm_cost_ms"),
        ),
        Limits(arguments.max_imbalance_ratio, arguments.max_comm_ratio),
    )
    decision = Decision(baseline, candidate, verdict)
    options.deliver(arguments, lambda form: decision_text(decision, form))
    return EXIT_REJECTED if arguments.gate and verdict.decision == REJECT else 0
