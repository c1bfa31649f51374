"""``pointsman envoy-config``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.cli import pick
from pointsman.cli.serve import host_and_port
from pointsman.core.checks import check_integer, check_number
from pointsman.core.errors import InputError, wrong_value

if TYPE_CHECKING:
    from pointsman.picker.envoy_config import EnvoySettings, Json

NAME = "envoy-config"
HELP = "print the configuration of an Envoy on this machine that asks `pointsman pick`"

# Those of envoy_config; a test compares them.
FAILURE_MODES = ("FailOpen", "FailClose")
ANSWERS = ("none", "heads", "bodies")
MOST_BODY_MB = 2047


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags. Their defaults are those of EnvoySettings; a test compares them."""
    parser.add_argument(
        "--replica",
        action="append",
        metavar="URL",
        dest="replica_urls",
        help="http://IP:PORT, as the picker has it; once for each replica",
    )
    _add_addresses(parser)
    parser.add_argument(
        "--failure-mode",
        choices=FAILURE_MODES,
        default=FAILURE_MODES[0],
        help="what becomes of requests while the picker does not answer: Envoy chooses the least"
        " loaded replica, or answers 500 (default: %(default)s)",
    )
    parser.add_argument(
        "--answers",
        choices=ANSWERS,
        default=ANSWERS[1],
        help="what the picker sees of answers: nothing; their heads, so that it knows who served"
        " and how; or their bodies too, for first tokens and counts, at the price of a message"
        " for each piece (default: %(default)s)",
    )
    parser.add_argument(
        "--duplex",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="send requests in pieces, as Kubernetes gateways do, instead of in one message",
    )
    _add_limits(parser)
    parser.add_argument(
        "--endpoints",
        type=Path,
        metavar="FILE",
        help="write the replicas into this file, which Envoy reads again when it is replaced, so"
        " that they can change while it runs (default: none)",
    )
    parser.add_argument(
        "--output", type=Path, metavar="FILE", help="write it there instead (default: none)"
    )


def _add_addresses(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen",
        default="127.0.0.1:8080",
        metavar="HOST:PORT",
        help="where Envoy listens for clients (default: %(default)s)",
    )
    parser.add_argument(
        "--picker",
        default=pick.DEFAULT_LISTEN,
        metavar="HOST:PORT",
        help="where the picker listens (default: %(default)s)",
    )
    parser.add_argument(
        "--picker-ca",
        type=Path,
        metavar="FILE",
        help="speak TLS to the picker, whose certificate must be one of these, in PEM, or rest on"
        " one (default: none)",
    )
    parser.add_argument(
        "--picker-name",
        metavar="NAME",
        help="the name in DNS that the picker's certificate must be for (default: any)",
    )
    parser.add_argument("--admin", metavar="HOST:PORT", help="where Envoy's own pages are")


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--session-header",
        default="x-session-id",
        metavar="NAME",
        help="the header that names a request's session, as the picker has it"
        " (default: %(default)s)",
    )
    parser.add_argument(
        "--retries",
        type=int,
        default=1,
        metavar="N",
        help="on how many further replicas a request is tried that could not be sent"
        " (default: %(default)s)",
    )
    parser.add_argument(
        "--message-timeout-ms",
        type=float,
        default=5000.0,
        metavar="MS",
        help="how long the picker may take (default: %(default)s)",
    )
    parser.add_argument(
        "--max-body-mb",
        type=int,
        default=64,
        metavar="MB",
        help="of a request's body at most (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print it; the exit code."""
    from pointsman.picker.envoy_config import endpoints_of, envoy_config

    settings = _settings(arguments)
    if settings.endpoints is not None:  # first, for Envoy does not start without it
        _write(settings.endpoints, endpoints_of(settings.replicas))
    config = envoy_config(settings)
    if arguments.output is None:
        sys.stdout.write(_text(config).decode())
    else:
        _write(arguments.output, config)
    return 0


def _write(path: Path, content: Json) -> None:
    from pointsman.core.files import whole_file

    with whole_file(path) as file:
        file.write(_text(content))


def _text(content: Json) -> bytes:
    import msgspec

    return msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"


def _settings(arguments: argparse.Namespace) -> EnvoySettings:
    from pointsman.picker.envoy_config import EnvoySettings
    from pointsman.picker.picks import check_endpoint
    from pointsman.router.upstream import replica_address

    addresses = tuple(replica_address(url) for url in arguments.replica_urls or ())
    if not addresses:
        raise InputError("envoy-config: no replica; expected --replica URL")
    for place, address in enumerate(addresses):
        check_endpoint(address)
        if address in addresses[:place]:
            raise InputError(f"--replica {address.url}: is given twice")
    check_integer(NAME, "--retries", arguments.retries, 0)
    check_integer(NAME, "--max-body-mb", arguments.max_body_mb, 1, most=MOST_BODY_MB)
    check_number(NAME, "--message-timeout-ms", arguments.message_timeout_ms, above=0.0)
    return EnvoySettings(
        listen=host_and_port("--listen", arguments.listen),
        picker=_picker(arguments.picker),
        replicas=addresses,
        failure_mode=arguments.failure_mode,
        answers=arguments.answers,
        is_duplex=arguments.duplex,
        retries=arguments.retries,
        message_timeout_ms=arguments.message_timeout_ms,
        max_body_bytes=arguments.max_body_mb << 20,
        session_header=_session_header(arguments.session_header),
        admin=None if arguments.admin is None else host_and_port("--admin", arguments.admin),
        endpoints=_endpoints(arguments),
        picker_ca=_authorities(arguments),
        picker_name=arguments.picker_name,
    )


def _authorities(arguments: argparse.Namespace) -> Path | None:
    """In full, for Envoy may be started anywhere."""
    from pointsman.picker.tls import check_authorities

    path: Path | None = arguments.picker_ca
    if path is None:
        if arguments.picker_name is not None:
            raise InputError("--picker-name: does nothing without --picker-ca")
        return None
    check_authorities(path)
    return path.absolute()


def _endpoints(arguments: argparse.Namespace) -> Path | None:
    """In full, for Envoy may be started anywhere."""
    if arguments.endpoints is None:
        return None
    return Path(arguments.endpoints.resolve())  # where it is written, and watched


def _picker(text: str) -> tuple[str, int]:
    from ipaddress import ip_address

    host, port = host_and_port("--picker", text)
    try:
        ip_address(host)
    except ValueError:
        raise InputError(f"--picker {text}: expected IP:PORT; Envoy looks no names up") from None
    return host, port


def _session_header(name: str) -> str:
    from pointsman.router.prompt import QuestionReader

    if "'" in name:
        raise wrong_value(NAME, "--session-header", name, "a name without quotes")
    return QuestionReader(b"", name.lower()).session_header
