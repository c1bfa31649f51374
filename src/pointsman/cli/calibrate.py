"""``pointsman calibrate``: the costs of a real engine, from a recorded run."""

from __future__ import annotations

import argparse
from pathlib import Path

from pointsman.cli import options, progress

NAME = "calibrate"
HELP = "fit the batching simulator's costs to a recorded run, and say how far it is from it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "folder",
        type=Path,
        metavar="RUN_FOLDER",
        help="meta.json, requests.jsonl and, where there is one, timeseries.csv",
    )
    parser.add_argument(
        "--fit-first",
        type=int,
        metavar="N",
        help="fit to the times of the first N requests to arrive, at least 5 (default: all)",
    )
    parser.add_argument(
        "--repeat",
        nargs="+",
        type=Path,
        default=[],
        metavar="RUN_FOLDER",
        help="further recorded runs of the same requests on the same engine: how much they differ"
        " stands beside each error",
    )
    parser.add_argument(
        "--format",
        choices=options.OUTPUT_FORMATS,
        help="of what is printed (default: table)",
    )
    parser.add_argument(
        "--output",
        dest="cost_file",
        type=Path,
        metavar="FILE",
        help="write the costs there as JSON, with the range in which they were seen to hold",
    )
    parser.set_defaults(output=None, printed="table")


def run(arguments: argparse.Namespace) -> int:
    """Calibrate; 0."""
    from pointsman.calibrate.calibration import calibrate
    from pointsman.calibrate.cost_file import write_cost_file
    from pointsman.calibrate.recording import read_recording
    from pointsman.calibrate.simulated import kernels_of
    from pointsman.report.calibration import calibration_text

    recording = read_recording(arguments.folder)
    repeats = [read_recording(folder) for folder in arguments.repeat]
    progress.announce_compilation(kernels_of(recording.setup))
    progress.announce_fit()
    result = calibrate(recording, arguments.fit_first, repeats)
    if arguments.cost_file is not None:
        said = options.will_be_written(arguments.cost_file)
        write_cost_file(arguments.cost_file, result.file)
        options.say(said)
    options.deliver(arguments, lambda form: calibration_text(result, form))
    return 0
