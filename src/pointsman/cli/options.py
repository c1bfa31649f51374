"""The flags that several commands share: how to read a trace, where results go."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pointsman.cli import progress
from pointsman.cli.fleet_flags import FLEET_HELP

if TYPE_CHECKING:
    from pointsman.policies.policy import Policy
    from pointsman.sim.fifo import FifoFleet
    from pointsman.workload.reading import ReadOptions
    from pointsman.workload.workload import Workload

FORMAT_NAMES = (
    "pointsman",
    "mooncake",
    "azure",
    "bailian",
    "burstgpt",
    "vidur",
    "vllm_timed_trace",
)
OUTPUT_FORMATS = ("table", "json", "csv")

# Arguments that name a file which is written, with their flags.
_OUTPUTS = {
    "output": "--output",
    "cost_file": "--output",
    "report": "--report",
    "timeline": "--timeline",
    "endpoints": "--endpoints",
}
# Arguments that name a file in a word which is no Path, for it may be no file: ``-``, ``4xh100``.
_WORDS = ("file", "fleet", "trace", "replicate_with", "arrivals_of", "lengths_of")


def add_reading(parser: argparse.ArgumentParser) -> None:
    """The trace and how to read it."""
    parser.add_argument("file", metavar="TRACE", help="a trace, also .gz or .zst; - is stdin")
    group = parser.add_argument_group("reading the trace")
    group.add_argument(
        "--format-in",
        choices=FORMAT_NAMES,
        metavar="NAME",
        help=f"{', '.join(FORMAT_NAMES)} (default: recognised by content)",
    )
    group.add_argument(
        "--block-size", type=int, metavar="TOKENS", help="tokens a block id stands for"
    )
    group.add_argument(
        "--time-unit", choices=("ms", "s"), help="of the times (default: what the format states)"
    )
    group.add_argument(
        "--failed-requests",
        choices=("keep", "omit"),
        help="of a burstgpt trace: keep them with no output or omit them (default: refuse them)",
    )
    group.add_argument("--limit", type=int, metavar="N", help="only the first N requests")
    group.add_argument(
        "--skip-bad", action="store_true", help="leave bad lines out and say how many"
    )
    group.add_argument(
        "--spread-arrivals",
        action="store_true",
        help="spread arrivals inside the trace's step of time (with --seed)",
    )


def add_seed(parser: argparse.ArgumentParser) -> None:
    """The seed of whatever is random."""
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of all draws (default: %(default)s)"
    )


def read_options(arguments: argparse.Namespace) -> ReadOptions:
    """What ``add_reading`` and ``add_seed`` declared, as the readers take it."""
    from pointsman.workload.reading import ReadOptions

    return ReadOptions(
        format=arguments.format_in,
        skip_bad=arguments.skip_bad,
        limit=arguments.limit,
        block_size_tokens=arguments.block_size,
        time_unit=arguments.time_unit,
        failed_requests=arguments.failed_requests,
        spread_seed=arguments.seed if arguments.spread_arrivals else None,
    )


def read_trace(arguments: argparse.Namespace) -> Workload:
    """The workload that the flags name; what was skipped is said on stderr."""
    from pointsman.core.errors import InputError
    from pointsman.workload.formats import WITH_TIME_UNIT, read_workload

    with progress.reading(arguments.file) as on_bytes:
        options = replace(read_options(arguments), on_bytes=on_bytes)
        workload = read_workload(arguments.file, options)
    if options.time_unit is not None and workload.source.format not in WITH_TIME_UNIT:
        raise InputError(
            f"{arguments.file}: --time-unit {options.time_unit} does not apply;"
            f" expected a trace of {', '.join(sorted(WITH_TIME_UNIT))}, this one is"
            f" {workload.source.format}"
        )
    if workload.source.skipped_lines:
        say(f"{workload.source.skipped_lines:,} bad lines left out")
    if workload.source.failures_left_out:
        say(f"{workload.source.failures_left_out:,} failed requests left out")
    return workload


def add_fleet(parser: argparse.ArgumentParser, batching: bool = False) -> None:
    """The simulated fleet and what a request costs on it; ``batching``: or ``--fleet``."""
    group = parser.add_argument_group("fleet")
    kinds = group.add_mutually_exclusive_group(required=True) if batching else group
    kinds.add_argument(
        "--replicas",
        type=int,
        required=not batching,
        metavar="N",
        help="how many equal replicas there are",
    )
    costs_help = "cost constants, .json or .toml (see estimate)"
    if batching:
        kinds.add_argument("--fleet", metavar="FLEET", help=FLEET_HELP)
        costs_help += "; with --fleet what pointsman calibrate wrote"
    group.add_argument("--costs", type=Path, metavar="FILE", help=costs_help)
    group.add_argument(
        "--cache-hit-speedup",
        type=float,
        metavar="X",
        help="0..1, what a hit saves of a row's own service_ms (default: 0.3)",
    )


def fleet_of(arguments: argparse.Namespace) -> FifoFleet:
    """The fleet that ``add_fleet`` declared."""
    from pointsman.costs.files import read_costs
    from pointsman.costs.stages import StageCosts
    from pointsman.sim.fifo import DEFAULT_CACHE_HIT_SPEEDUP, FifoFleet

    speedup = arguments.cache_hit_speedup
    return FifoFleet(
        replicas=arguments.replicas,
        cache_hit_speedup=DEFAULT_CACHE_HIT_SPEEDUP if speedup is None else speedup,
        costs=StageCosts() if arguments.costs is None else read_costs(arguments.costs),
    )


POLICY_HELP = (
    "a name of `pointsman policies` or FILE.py:NAME, with parameters as in"
    " locality_aware:slack_ms=20"
)


def add_slack(parser: argparse.ArgumentParser) -> None:
    """The one parameter with a flag of its own."""
    parser.add_argument(
        "--slack-ms",
        type=_slack,
        metavar="MS",
        help="of locality-aware policies, or auto: what each hit saves (default: 5)",
    )


def _slack(text: str) -> str:
    if text != "auto":
        try:
            float(text)
        except ValueError:
            raise argparse.ArgumentTypeError(
                f"{text!r} is no time; expected a number of ms, or auto"
            ) from None
    return text


def policy_of(text: str, slack_ms: str | None) -> Policy:
    """One policy, as ``policies_of`` gives several."""
    return policies_of([text], slack_ms)[0]


def policies_of(texts: Sequence[str], slack_ms: str | None) -> list[Policy]:
    """Policies by name or file; ``--slack-ms`` sets it where the text does not.

    Raises InputError when none of them takes ``--slack-ms``.
    """
    from pointsman.core.errors import InputError
    from pointsman.policies.catalogue import policy_named

    policies = [policy_named(text) for text in texts]
    if slack_ms is None:
        return policies
    taking = [
        "slack_ms" in policy.parameters and "slack_ms=" not in text
        for text, policy in zip(texts, policies, strict=True)
    ]
    if not any(taking):
        raise InputError(
            f"--slack-ms is {slack_ms}, and {', '.join(texts)} does not take it;"
            " expected a policy with the parameter slack_ms, such as locality_aware"
        )
    return [
        policy_named(f"{text}:slack_ms={slack_ms}") if takes else policy
        for text, policy, takes in zip(texts, policies, taking, strict=True)
    ]


def add_output(
    parser: argparse.ArgumentParser, printed: str = "table", *, inherits: bool = False
) -> None:
    """What is printed (by default ``printed``), and where it goes.

    A subcommand that ``inherits`` leaves what was said before its name as it is.
    """
    unsaid = argparse.SUPPRESS if inherits else None
    parser.add_argument(
        "--format",
        choices=OUTPUT_FORMATS,
        default=unsaid,
        help=f"of what is printed or, with --output, written (default: {printed}; with --output"
        " by its suffix)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=unsaid,
        metavar="FILE",
        help="write the result there, whole or not at all; without --format the table is still"
        " printed",
    )
    parser.set_defaults(printed=printed)


def add_report(parser: argparse.ArgumentParser) -> None:
    """Where the result goes as a page."""
    parser.add_argument(
        "--report",
        type=Path,
        metavar="FILE.html",
        help="write the result there as a page with charts too: one file that works offline",
    )


def deliver_report(
    arguments: argparse.Namespace, label: str, document: Callable[[], dict[str, Any]]
) -> None:
    """Write the page of a document where ``--report`` says; nothing without it."""
    from pointsman.report.html.page import page_of_document

    if arguments.report is not None:
        write_page(arguments.report, page_of_document(document(), label))


def write_page(path: Path, page: str) -> None:
    """Write a page, whole or not at all, and say so."""
    say(write_text(path, page))


def write_text(path: Path, text: str) -> str:
    """Write a file, whole or not at all; what to say of it."""
    from pointsman.core.files import whole_file

    said = will_be_written(path)
    with whole_file(path) as file:
        file.write(text.encode())
    return said


def will_be_written(path: Path) -> str:
    """What to say of a file once it is written; asked before that, for it may replace one."""
    return f"wrote {path}{replaced_note(path)}"


def replaced_note(path: Path) -> str:
    """What is said behind the name of a file that takes the place of one that is there."""
    return " (replaced)" if path.is_file() else ""


def check_outputs(arguments: argparse.Namespace) -> None:
    """Refuse files that cannot be written, or are another output or an input, before the work
    whose result goes there; what is no regular file, such as a device, takes several."""
    from pointsman.core.errors import InputError
    from pointsman.core.files import check_can_write

    taken: dict[Path, str] = {}
    for name, flag in _OUTPUTS.items():
        path = getattr(arguments, name, None)
        if path is None:
            continue
        check_can_write(path)
        real = _real(path)
        if real.exists() and not real.is_file():
            continue
        if real in taken:
            raise InputError(
                f"{flag} is {path}, and so is {taken[real]}; expected a file of its own"
            )
        if real in map(_real, _other_paths(arguments)):
            raise InputError(
                f"{flag} is {path}, and the command reads it; expected a file of its own"
            )
        taken[real] = flag


def _real(path: Path) -> Path:
    try:
        return Path(os.path.realpath(path))
    except ValueError:  # a null character: whoever opens it says so
        return path


def _other_paths(arguments: argparse.Namespace) -> Iterator[Path]:
    """All paths that are given, those of outputs apart."""
    for name, value in vars(arguments).items():
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Path) and name not in _OUTPUTS:
                yield each
            elif isinstance(each, str) and name in _WORDS and _is_file_word(name, each):
                yield Path(each)


def _is_file_word(name: str, word: str) -> bool:
    if name != "fleet":
        return word != "-"
    from pointsman.fleet.words import names_a_file

    return names_a_file(word)


def form_of(arguments: argparse.Namespace) -> str:
    """The format of what ``deliver`` prints or, with ``--output``, writes."""
    if arguments.output is None:
        return str(arguments.format or arguments.printed)
    suffix = arguments.output.suffix[1:]
    return str(arguments.format or (suffix if suffix in OUTPUT_FORMATS else "json"))


def deliver(arguments: argparse.Namespace, render: Callable[[str], str]) -> None:
    """Print or write a result; ``render`` gives its text in a format."""
    form = form_of(arguments)
    if arguments.output is None:
        sys.stdout.write(render(form))
        return
    said = write_text(arguments.output, render(form))
    if arguments.format is None:
        sys.stdout.write(render("table"))
    say(said)


def say(message: str) -> None:
    """A remark for a person, kept out of stdout."""
    print(message, file=sys.stderr)
