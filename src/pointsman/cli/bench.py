"""``pointsman bench``: an experiment on real engines."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.cli import options
from pointsman.cli.timelines import Stories, add_timeline

if TYPE_CHECKING:
    from pointsman.bench.client.progress import Progress
    from pointsman.bench.experiment import Experiment
    from pointsman.bench.foretelling import Foretelling
    from pointsman.bench.groups import Bench
    from pointsman.bench.missing import Missing
    from pointsman.bench.run import Outcome
    from pointsman.evidence.judging import Rule

NAME = "bench"
HELP = "measure real engines: one replica, several behind the router, prefill and decode apart"

RESULTS = Path("results")
EXIT_INTERRUPTED = 130
_LINE_S = 5.0  # where there is no terminal


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "experiment",
        nargs="?",
        type=Path,
        metavar="EXPERIMENT",
        help="a file (docs/experiments.md)",
    )
    parser.add_argument(
        "--demo",
        action="store_true",
        help="in place of a file: a tiny model on llama.cpp, two idle cores, two to four minutes",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="say all that this machine lacks for it, each with its fix; 1 if anything",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="say what would run, and run nothing (default: where GPUs are asked for and missing)",
    )
    parser.add_argument(
        "--output",
        dest="results",
        type=Path,
        default=RESULTS,
        metavar="DIR",
        help="where labels are (default: %(default)s)",
    )
    parser.add_argument(
        "--label", metavar="NAME", help="of this run, a new one (default: run-1, run-2, ...)"
    )
    parser.add_argument(
        "--order", choices=("given", "abba"), help="of the repeats (default: as the file says)"
    )
    parser.add_argument(
        "--repeats", type=int, metavar="N", help="of each group (default: as the file says)"
    )
    parser.add_argument(
        "--predict",
        action="store_true",
        help="calibrate on the group of one replica, predict the others before they run, and say"
        " how far off that was (--demo does)",
    )
    options.add_report(parser)
    add_timeline(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure; 0, 1 where a group failed or something is missing, 130 interrupted."""
    from pointsman.bench.missing import listed
    from pointsman.bench.run import bench_of, missing_for_bench
    from pointsman.core.errors import MachineError
    from pointsman.evidence.folder import check_name

    experiment, file = _experiment(arguments)
    if arguments.label is not None:
        check_name("label", arguments.label)
    folder = arguments.results / (arguments.label or "NEW-LABEL")
    bench = bench_of(experiment, file, folder, os.environ)
    missing = missing_for_bench(bench, folder if arguments.label is not None else None)
    if arguments.check:
        return _checked(bench, missing)
    if arguments.dry_run or _lacks_gpus(bench):
        return _dry(bench, missing)
    if missing:
        raise MachineError(f"bench: nothing was run; what is missing:\n{listed(missing).rstrip()}")
    return _measured(arguments, bench)


def _experiment(arguments: argparse.Namespace) -> tuple[Experiment, Path]:
    import msgspec

    from pointsman.bench.demo import DEMO
    from pointsman.bench.experiment import read_experiment
    from pointsman.core.checks import check_integer
    from pointsman.core.errors import InputError

    if arguments.demo == (arguments.experiment is not None):
        raise InputError("bench: expected the file of an experiment, or --demo, one of the two")
    file = DEMO if arguments.demo else arguments.experiment
    changed = {}
    if arguments.order is not None:
        changed["order"] = arguments.order
    if arguments.repeats is not None:
        check_integer("bench", "--repeats", arguments.repeats, 1)
        changed["repeats"] = arguments.repeats
    return msgspec.structs.replace(read_experiment(file), **changed), file


def _lacks_gpus(bench: Bench) -> bool:
    """Whether they are asked for and not there: then the run is dry."""
    experiment = bench.experiment
    return experiment.hardware.device == "gpu" and len(bench.machine.gpus) < experiment.world_size


def _checked(bench: Bench, missing: tuple[Missing, ...]) -> int:
    from pointsman.bench.missing import listed

    if missing:
        sys.stdout.write(f"{bench.file}: what is missing:\n{listed(missing)}")
        return 1
    engine = bench.experiment.engine.name
    version = bench.engine.version()
    named = f"{engine}, {version}" if version else engine
    sys.stdout.write(f"{bench.file}: nothing is missing; engine {named}\n")
    return 0


def _dry(bench: Bench, missing: tuple[Missing, ...]) -> int:
    from pointsman.bench.dry import would_run
    from pointsman.bench.missing import listed

    found = f"what is missing:\n{listed(missing)}" if missing else "nothing is missing\n"
    sys.stdout.write(
        f"dry run: nothing was measured, nothing was written\n{found}it would run:\n"
        f"{would_run(bench)}"
    )
    return 0


def _measured(arguments: argparse.Namespace, bench: Bench) -> int:
    from pointsman.bench.foretelling import Foretelling
    from pointsman.bench.run import Shown, run
    from pointsman.evidence.folder import new_label_folder

    bench = replace(bench, folder=new_label_folder(arguments.results, arguments.label))
    options.say(f"results are in {bench.folder}; Ctrl-C ends it, and keeps what was measured")
    foretelling = None
    if arguments.predict or arguments.demo:
        foretelling = Foretelling(bench, options.say)
    line = _Line()
    outcome = run(bench, Shown(line.say, line.show), foretelling)
    line.close()
    _tell(bench, outcome, foretelling)
    if outcome.files:
        _draw(arguments, bench, outcome)
    if outcome.is_interrupted:
        return EXIT_INTERRUPTED
    return 1 if outcome.failures else 0


def _tell(bench: Bench, outcome: Outcome, foretelling: Foretelling | None) -> None:
    """The table, what came true of the predictions, and what is decided of the groups."""
    from pointsman.core.errors import InputError
    from pointsman.evidence.deciding import Choice, decide_files
    from pointsman.evidence.decision_file import write_decision
    from pointsman.evidence.folder import evidence_files
    from pointsman.report.bench import bench_table
    from pointsman.report.measured_decision import decisions_in_short
    from pointsman.report.prediction import prediction_text

    if not outcome.files:
        options.say("nothing was measured")
        return
    sys.stdout.write(bench_table(outcome.files))
    report = foretelling.report(outcome.files) if foretelling is not None else None
    if report is not None:
        sys.stdout.write(f"\n{prediction_text(report, 'table')}")
    try:
        document = decide_files(evidence_files(bench.folder), bench.folder.name, Choice(), _rule())
    except InputError as error:
        options.say(f"nothing is decided: {error}")
        return
    sys.stdout.write(f"\n{decisions_in_short(document)}")
    options.say(f"decided in {write_decision(bench.folder, document)}")


def _draw(arguments: argparse.Namespace, bench: Bench, outcome: Outcome) -> None:
    """The page and the trace file, as far as asked for."""
    from pointsman.bench.client.rows import read_rows
    from pointsman.report.html.page import page_of_label
    from pointsman.report.timeline.measured import story_of_rows

    if arguments.report is not None:
        options.write_page(arguments.report, page_of_label(bench.folder, bench.folder.name))
    stories = Stories(arguments)
    if stories.are_wanted:
        for path in outcome.files:
            rows = bench.folder / "rows" / f"{path.stem}-1.jsonl"
            if rows.is_file():
                stories.add(story_of_rows(read_rows(rows), path.stem))
        stories.deliver()


def _rule() -> Rule:
    """As ``pointsman decide`` has it without flags."""
    from pointsman.cli.decide import DEFAULT_MAX_COMM_RATIO, DEFAULT_MAX_IMBALANCE_RATIO
    from pointsman.evidence.judging import Rule
    from pointsman.verdict.decide import Limits

    return Rule(Limits(DEFAULT_MAX_IMBALANCE_RATIO, DEFAULT_MAX_COMM_RATIO))


class _Line:
    """Facts about the load: one line that is written over, or on a pipe one every few seconds."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._is_open = False
        self._said_ms: dict[str, float] = {}

    def say(self, message: str) -> None:
        """A sentence, on a line of its own."""
        self.close()
        options.say(message)

    def close(self) -> None:
        """End the line that is written over."""
        if self._is_open:
            print(file=sys.stderr, flush=True)
        self._is_open = False

    def show(self, name: str, progress: Progress) -> None:
        """Where the load of that name is."""
        from pointsman.bench.client.progress import progress_line

        line = f"{name}: {progress_line(progress)}"
        is_last = progress.ended == progress.planned
        if self._is_terminal:
            print(f"\r\x1b[K{_cut(line)}", end="", file=sys.stderr, flush=True)
            self._is_open = True
            if is_last:
                self.close()
            return
        said_ms = self._said_ms.get(name, 0.0)
        if is_last or progress.elapsed_ms - said_ms >= _LINE_S * 1e3:
            self._said_ms[name] = progress.elapsed_ms
            print(line, file=sys.stderr, flush=True)


def _cut(line: str) -> str:
    """As wide as the terminal, for a line that went on in the next one is not written over."""
    columns = os.get_terminal_size(sys.stderr.fileno()).columns
    return line[: columns - 1] if columns else line
