"""``pointsman decide``: accept, tune or reject candidates, estimated or measured."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.cli import options

if TYPE_CHECKING:
    from pointsman.verdict.decide import Limits

NAME = "decide"
HELP = "accept, tune or reject: an estimate against another, or the measured groups of a folder"

EXIT_REJECTED = 3

# The limits of the lesson on distributed inference.
DEFAULT_MAX_IMBALANCE_RATIO = 0.8
DEFAULT_MAX_COMM_RATIO = 0.05

_MEASURED_FLAGS = ("label", "baseline_group", "candidates", "vary", "level", "max_memory_mb")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "baseline",
        type=Path,
        metavar="RESULTS|BASELINE",
        help="a folder of measured groups, the file of a mechanism run, or JSON of `pointsman"
        " estimate` of one replica",
    )
    parser.add_argument(
        "candidate",
        type=Path,
        nargs="?",
        metavar="CANDIDATE",
        help="JSON of `pointsman estimate`; not with a folder",
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
    parser.add_argument(
        "--gate", action="store_true", help="exit with 3 when it, or any candidate, is rejected"
    )
    _add_measured(parser.add_argument_group("measured groups"))
    options.add_output(parser)


def _add_measured(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--label", metavar="NAME", help="which run of RESULTS (default: the only)")
    group.add_argument(
        "--baseline",
        dest="baseline_group",
        metavar="GROUP",
        help="what is compared with (default: the group of one replica)",
    )
    group.add_argument(
        "--candidate",
        dest="candidates",
        action="append",
        metavar="GROUP",
        help="what is decided on; may be repeated (default: all others)",
    )
    group.add_argument(
        "--vary",
        nargs="+",
        metavar="ASPECT",
        help="what is under test: policy, replicas, mode, parallel, handoff, engine, model, dtype,"
        " hardware (default: the one aspect of the shape that differs)",
    )
    group.add_argument("--level", type=float, metavar="P", help="of intervals (default: 0.95)")
    group.add_argument(
        "--max-memory-mb", type=float, metavar="X", help="most peak memory of a candidate"
    )


def run(arguments: argparse.Namespace) -> int:
    """Decide; 0, or 3 when rejected under ``--gate``."""
    from pointsman.core.errors import wrong_value
    from pointsman.verdict.decide import Limits

    for flag in ("max_imbalance_ratio", "max_comm_ratio", "max_memory_mb"):
        value = getattr(arguments, flag)
        if value is not None and not value >= 0:
            raise wrong_value("decide", f"--{flag.replace('_', '-')}", value, "a number >= 0")
    limits = Limits(arguments.max_imbalance_ratio, arguments.max_comm_ratio)
    if arguments.candidate is None:
        return _measured(arguments, limits)
    return _estimated(arguments, limits)


def _estimated(arguments: argparse.Namespace, limits: Limits) -> int:
    from pointsman.core.errors import InputError
    from pointsman.report.decision import Decision, decision_text
    from pointsman.verdict.decide import REJECT, Candidate, decide
    from pointsman.verdict.figures import read_figures, same_workload

    given = [name for name in _MEASURED_FLAGS if getattr(arguments, name) is not None]
    if given:
        raise InputError(
            f"decide: {', '.join(map(_flag, given))} is of measured groups; expected a folder of"
            " them, or two estimates without it"
        )
    baseline, candidate = read_figures(arguments.baseline), read_figures(arguments.candidate)
    same_workload(baseline, candidate)
    verdict = decide(
        baseline.required("single_replica_time_ms"),
        Candidate(
            candidate.required("makespan_ms"),
            candidate.required("imbalance_ratio"),
            candidate.required("comm_cost_ms"),
        ),
        limits,
    )
    decision = Decision(baseline, candidate, verdict)
    options.deliver(arguments, lambda form: decision_text(decision, form))
    return EXIT_REJECTED if arguments.gate and verdict.decision == REJECT else 0


def _measured(arguments: argparse.Namespace, limits: Limits) -> int:
    from pointsman.evidence.deciding import Choice, decide_files
    from pointsman.evidence.decision_file import write_decision
    from pointsman.evidence.folder import DECISION_STEM, evidence_files, label_folder
    from pointsman.evidence.judging import Rule
    from pointsman.report.measured_decision import measured_decision_text
    from pointsman.verdict.decide import REJECT
    from pointsman.verdict.uncertainty import check_level

    level = 0.95 if arguments.level is None else arguments.level
    check_level(level)
    path = arguments.baseline
    if path.is_dir():
        folder = label_folder(path, arguments.label)
        files, stem = evidence_files(folder), DECISION_STEM
    else:
        folder, files, stem = path.parent, [path], f"{path.stem}.{DECISION_STEM}"
    choice = Choice(
        baseline=arguments.baseline_group,
        candidates=tuple(arguments.candidates or ()),
        vary=tuple(arguments.vary or ()),
    )
    rule = Rule(limits, level, arguments.max_memory_mb)
    document = decide_files(files, folder.name, choice, rule)
    options.deliver(arguments, lambda form: measured_decision_text(document, form))
    options.say(f"decided in {write_decision(folder, document, stem)}")
    return EXIT_REJECTED if arguments.gate and REJECT in document.decisions else 0


def _flag(name: str) -> str:
    words = {"baseline_group": "baseline", "candidates": "candidate"}
    return f"--{words.get(name, name).replace('_', '-')}"
