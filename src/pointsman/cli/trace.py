"""``pointsman trace``: what is in a trace, a trace in our format, a generated workload."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pointsman.cli import progress
from pointsman.cli.options import (
    add_output,
    add_reading,
    add_seed,
    deliver,
    read_options,
    read_trace,
    replaced_note,
    say,
)

if TYPE_CHECKING:
    from pointsman.workload.arrivals import Arrivals
    from pointsman.workload.distributions import Distribution
    from pointsman.workload.generate import Conversations, SystemPrompts, Traffic
    from pointsman.workload.workload import Workload

NAME = "trace"
HELP = "look into a request trace, convert one to Pointsman's format, or generate one"

_SPEC_WANTED = "a number or KIND:name=value,..."
_SPEC_HELP = (
    "SPEC is a number, or one of constant:value=V uniform:min=A,max=B normal:mean=M,stdev=S"
    " lognormal:mean=M,sigma=S (or median=M) exponential:mean=M geometric:mean=M;"
    " normal, lognormal and exponential also take min=A,max=B"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the three subcommands and their flags."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _add_info(actions)
    _add_convert(actions)
    _add_generate(actions)


def run(arguments: argparse.Namespace) -> int:
    """Run the subcommand; the exit code."""
    action: Callable[[argparse.Namespace], int] = arguments.act
    return action(arguments)


def _add_info(actions: Any) -> None:
    text = "say what is in a trace: traffic, lengths, sessions, prefix reuse"
    info = actions.add_parser("info", help=text, description=text)
    add_reading(info)
    add_seed(info)
    add_output(info)
    info.set_defaults(act=_info)


def _add_convert(actions: Any) -> None:
    text = "write any trace, or a decision log, as JSON Lines in Pointsman's format"
    convert = actions.add_parser("convert", help=text, description=text)
    add_reading(convert)
    convert.add_argument(
        "more", nargs="*", type=Path, metavar="LOG", help="of a decision log: its other files"
    )
    add_seed(convert)
    convert.add_argument(
        "--output", type=Path, required=True, metavar="FILE", help="OUT.jsonl, also .gz or .zst"
    )
    convert.add_argument(
        "--rate-scale", type=float, metavar="X", help="X times the rate: arrivals divided by X"
    )
    convert.set_defaults(act=_convert)


def _add_generate(actions: Any) -> None:
    text = "generate a workload from one seed"
    parser = actions.add_parser("generate", help=text, description=text, epilog=_SPEC_HELP)
    parser.add_argument(
        "--requests", type=int, required=True, metavar="N", help="how many to generate"
    )
    add_seed(parser)
    parser.add_argument(
        "--output", type=Path, required=True, metavar="FILE", help="OUT.jsonl, also .gz or .zst"
    )
    _add_arrivals(parser.add_argument_group("arrivals"))
    lengths = parser.add_argument_group("lengths")
    lengths.add_argument(
        "--prompt-tokens", metavar="SPEC", help="new tokens of a request, 1 or more"
    )
    lengths.add_argument("--output-tokens", metavar="SPEC", help="tokens it generates, 1 or more")
    lengths.add_argument("--lengths-of", metavar="TRACE", help="draw both from a trace's columns")
    lengths.add_argument("--max-prompt-tokens", type=int, metavar="N", help="longest whole prompt")
    _add_prefixes(parser.add_argument_group("prefixes"))
    parser.set_defaults(act=_generate)


def _add_arrivals(group: Any) -> None:
    group.add_argument("--rate-rps", type=float, metavar="R", help="requests a second")
    group.add_argument(
        "--burstiness",
        type=float,
        metavar="B",
        help="shape of the gaps' gamma distribution; 1 is Poisson, less is burstier (default: 1)",
    )
    group.add_argument("--constant-rate", action="store_true", help="equal gaps")
    group.add_argument("--arrivals-of", metavar="TRACE", help="the arrivals of a trace")
    group.add_argument(
        "--rate-scale", type=float, metavar="X", help="X times the rate: arrivals divided by X"
    )


def _add_prefixes(group: Any) -> None:
    group.add_argument("--turns", metavar="SPEC", help="conversations of so many turns")
    group.add_argument(
        "--think-time-ms", metavar="SPEC", help="from a turn's arrival until the next is due"
    )
    group.add_argument(
        "--system-prompts", type=int, metavar="N", help="how many are shared (default: 1)"
    )
    group.add_argument("--system-prompt-tokens", metavar="SPEC", help="the length of each")
    group.add_argument(
        "--zipf-exponent", type=float, metavar="Z", help="popularity: rank ** -Z (default: 1)"
    )
    group.add_argument(
        "--block-size", type=int, metavar="TOKENS", help="tokens a block (default: 16)"
    )


def _info(arguments: argparse.Namespace) -> int:
    from pointsman.report.trace import trace_text
    from pointsman.workload.statistics import statistics_of

    statistics = statistics_of(read_trace(arguments))
    reading = read_options(arguments)
    deliver(arguments, lambda form: trace_text(statistics, reading, form))
    return 0


def _convert(arguments: argparse.Namespace) -> int:
    from pointsman.core.errors import InputError
    from pointsman.workload.arrivals import with_rate_scaled
    from pointsman.workload.formats import is_decision_log
    from pointsman.workload.text import STANDARD_INPUT

    if arguments.file != STANDARD_INPUT and is_decision_log(arguments.file):
        workload = _workload_of_log(arguments)
    elif arguments.more:
        raise InputError(
            f"{arguments.file}: is no decision log; expected one where several files are given"
        )
    else:
        workload = read_trace(arguments)
    if arguments.rate_scale is not None:
        workload = with_rate_scaled(workload, arguments.rate_scale)
    return _write(workload, arguments.output)


def _workload_of_log(arguments: argparse.Namespace) -> Workload:
    from pointsman.core.errors import InputError
    from pointsman.core.files import check_is_file
    from pointsman.dispatch.log_file import read_log
    from pointsman.replay.workload import workload_of
    from pointsman.workload.reading import ReadOptions

    if read_options(arguments) != ReadOptions():
        raise InputError(
            f"{arguments.file}: a decision log; expected none of the flags that say how to read"
            " a trace"
        )
    for path in arguments.more:
        check_is_file(path)
    log = read_log(Path(arguments.file), *arguments.more)
    workload: Workload = workload_of(log)
    if workload.source.skipped_lines:
        say(f"{workload.source.skipped_lines:,} requests without a prompt left out")
    counts = {
        "requests without an outcome": log.unfinished,
        "outcomes of requests sent before": log.earlier_outcomes,
        "choices that are in no file given": log.missing_choices,
    }
    for what, count in counts.items():
        if count:
            say(f"{what}: {count:,}")
    return workload


def _generate(arguments: argparse.Namespace) -> int:
    from pointsman.workload.arrivals import with_rate_scaled
    from pointsman.workload.generate import generate

    traffic = _traffic(arguments)
    with progress.working(f"generating {traffic.requests:,} requests", traffic.requests):
        workload = generate(traffic, arguments.seed)
    if arguments.rate_scale is not None:
        workload = with_rate_scaled(workload, arguments.rate_scale)
    return _write(workload, arguments.output)


def _write(workload: Workload, path: Path) -> int:
    from pointsman.workload.writer import write_workload

    replaced = replaced_note(path)
    with progress.working(f"writing {path.name}", len(workload)):
        write_workload(workload, path)
    source = workload.source
    notes = [f"wrote {len(workload):,} requests to {path}{replaced}"]
    if source.out_of_order:
        notes.append(f"{source.out_of_order:,} rows were out of order and are sorted")
    say("; ".join(notes))
    return 0


def _traffic(arguments: argparse.Namespace) -> Traffic:
    from pointsman.workload import generate

    prompt_tokens, output_tokens = _lengths(arguments)
    optional = {
        "block_size_tokens": arguments.block_size,
        "max_prompt_tokens": arguments.max_prompt_tokens,
    }
    return generate.Traffic(
        requests=arguments.requests,
        arrivals=_arrivals(arguments),
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        conversations=_conversations(arguments),
        system_prompts=_system_prompts(arguments),
        **_given(optional),
    )


def _conversations(arguments: argparse.Namespace) -> Conversations | None:
    from pointsman.workload.generate import Conversations

    if arguments.turns is None and arguments.think_time_ms is None:
        return None
    return Conversations(
        _distribution("--turns", arguments.turns),
        _distribution("--think-time-ms", arguments.think_time_ms),
    )


def _system_prompts(arguments: argparse.Namespace) -> SystemPrompts | None:
    from pointsman.core.errors import missing_field
    from pointsman.workload.generate import SystemPrompts

    optional = _given({"count": arguments.system_prompts, "zipf_exponent": arguments.zipf_exponent})
    if arguments.system_prompt_tokens is None:
        if optional:
            raise missing_field("generate", "--system-prompt-tokens", _SPEC_WANTED)
        return None
    return SystemPrompts(
        _distribution("--system-prompt-tokens", arguments.system_prompt_tokens), **optional
    )


def _arrivals(arguments: argparse.Namespace) -> Arrivals:
    from pointsman.core.errors import InputError
    from pointsman.workload import arrivals
    from pointsman.workload.formats import read_workload

    rate_rps, burstiness = arguments.rate_rps, arguments.burstiness
    if (rate_rps is None) == (arguments.arrivals_of is None):
        raise InputError("generate: expected --rate-rps or --arrivals-of, one of the two")
    if burstiness is not None and (arguments.constant_rate or rate_rps is None):
        raise InputError("generate: --burstiness goes with --rate-rps alone")
    if arguments.constant_rate and rate_rps is None:
        raise InputError("generate: --constant-rate goes with --rate-rps")
    if arguments.arrivals_of is not None:
        return arrivals.ReplayedArrivals(read_workload(arguments.arrivals_of).arrival_ms)
    if arguments.constant_rate:
        return arrivals.ConstantArrivals(rate_rps)
    if burstiness is None:
        return arrivals.PoissonArrivals(rate_rps)
    return arrivals.GammaArrivals(rate_rps, burstiness)


def _lengths(arguments: argparse.Namespace) -> tuple[Distribution, Distribution]:
    from pointsman.core.errors import InputError
    from pointsman.workload.distributions import Empirical
    from pointsman.workload.formats import read_workload

    if arguments.lengths_of is None:
        return (
            _distribution("--prompt-tokens", arguments.prompt_tokens),
            _distribution("--output-tokens", arguments.output_tokens),
        )
    if arguments.prompt_tokens is not None or arguments.output_tokens is not None:
        raise InputError(
            "generate: --lengths-of gives both lengths; expected no --prompt-tokens or"
            " --output-tokens beside it"
        )
    trace = read_workload(arguments.lengths_of)
    known = (trace.prompt_tokens >= 0) & (trace.output_tokens >= 0)
    return Empirical(trace.prompt_tokens[known]), Empirical(trace.output_tokens[known])


def _distribution(flag: str, text: str | None) -> Distribution:
    from pointsman.core.errors import missing_field
    from pointsman.workload.distributions import distribution_of_text

    if text is None:
        raise missing_field("generate", flag, _SPEC_WANTED)
    return distribution_of_text(text, flag)


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
