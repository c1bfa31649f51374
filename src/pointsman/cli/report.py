"""``pointsman report``: results as one HTML page."""

from __future__ import annotations

import argparse
from pathlib import Path

from pointsman.cli import options

NAME = "report"
HELP = "make one HTML page, which works offline, of a result or of several"

DEFAULT_PAGE = Path("report.html")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "results",
        nargs="+",
        type=Path,
        metavar="RESULT",
        help="JSON of compare, plan, policies bench, replay or calibrate, or a folder of measured"
        " groups; several are compared on one page",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=DEFAULT_PAGE,
        metavar="FILE.html",
        help="the page, written whole or not at all (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the page; 0."""
    from pointsman.report.html.page import page_of
    from pointsman.report.html.sources.files import results_at

    options.write_page(arguments.output, page_of(results_at(arguments.results)))
    return 0
