"""The ``pointsman`` command.

Each command is a module with ``NAME``, ``HELP``, ``add_arguments(parser)`` and ``run(arguments)``
(which returns the exit code). Modules import what they run with inside ``run``, so that
``--help`` loads nothing heavy.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import signal
import sys
import threading
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from types import ModuleType

from pointsman.cli import (
    bench,
    calibrate,
    compare,
    completion,
    decide,
    doctor,
    envoy_config,
    estimate,
    evidence,
    init,
    mechanism,
    options,
    pick,
    plan,
    policies,
    replay,
    report,
    serve,
    trace,
)
from pointsman.cli.interruptions import interruptions_reach_us
from pointsman.cli.parser import Parser
from pointsman.cli.welcome import WELCOME
from pointsman.core.errors import PointsmanError

COMMANDS: tuple[ModuleType, ...] = (
    compare,
    plan,
    estimate,
    decide,
    evidence,
    trace,
    policies,
    calibrate,
    serve,
    pick,
    envoy_config,
    replay,
    report,
    bench,
    mechanism,
    init,
    doctor,
    completion,
)

EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130
EXIT_PIPE_CLOSED = 141
EXIT_TERMINATED = 143

DESCRIPTION = (
    "Decide where LLM inference requests run over model replicas, and prove why:\n"
    "simulate, decide, route, replay, measure."
)
EXIT_CODES = f"""\
exit codes:
  0    done
  1    the machine refused (a file, a port), a replay disagrees with its log, or doctor --strict
       found something essential that is broken
  2    usage or input, or a file that evidence check finds unsound
  3    the verdict is reject, under decide --gate
  {EXIT_INTERNAL}   a bug in pointsman
  {EXIT_INTERRUPTED}  interrupted
  {EXIT_PIPE_CLOSED}  whoever read the output stopped
  {EXIT_TERMINATED}  told to end
"""


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = Parser(
        prog="pointsman",
        description=DESCRIPTION,
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"pointsman {version('pointsman')}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in COMMANDS:
        command = commands.add_parser(module.NAME, help=module.HELP, description=module.HELP)
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the process's exit code. Without a word it says where to begin."""
    _prepare_streams()
    argv = sys.argv[1:] if argv is None else argv
    try:
        if not argv:
            print(WELCOME, end="", flush=True)
            return 0
        arguments = build_parser().parse_args(argv)
        options.check_outputs(arguments)
        with interruptions_reach_us():
            code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except PointsmanError as error:
        _complain(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        _complain("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output stopped reading; Python would complain again at exit.
        _discard_output()
        return EXIT_PIPE_CLOSED
    except OSError as error:
        _discard_output()
        _complain(f"the machine refused: {error}")
        return 1
    except MemoryError:
        _complain("there is not enough memory for this")
        return 1
    except Exception as error:
        if os.environ.get("POINTSMAN_TRACEBACK"):
            traceback.print_exc()
        _complain(
            f"a bug in pointsman: {type(error).__name__}: {error};"
            " set POINTSMAN_TRACEBACK=1 to see where, and report it"
        )
        return EXIT_INTERNAL


def _prepare_streams() -> None:
    """Let every name be printed, work without a terminal, and clean up when told to end."""
    if sys.stdout is None:  # closed by whoever started us
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(EXIT_TERMINATED))


def _discard_output() -> None:
    """Let nothing more be written, for Python would try again at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str) -> None:
    print(f"pointsman: {message}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
