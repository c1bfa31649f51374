"""``pointsman pick``."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from pointsman.cli import serve
from pointsman.cli.edge_flags import add_body_limit, add_tls
from pointsman.cli.resilience_flags import HOLD_ORDER, add_resilience

if TYPE_CHECKING:
    from pointsman.picker.process import PickerSettings

NAME = "pick"
HELP = "pick endpoints for Envoy or a Kubernetes gateway, which carry the requests"

DEFAULT_LISTEN = "127.0.0.1:9002"

# Of who carries the requests, and of what waits in the router: nothing waits in a picker.
_NOT_OURS = (
    "--first-byte-timeout-ms",
    "--idle-timeout-ms",
    "--hold-ms",
    "--hold-requests",
    "--hold-mib",
    "--hold-timeout-ms",
    HOLD_ORDER,
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    serve.add_routing(parser)
    add_body_limit(parser)
    add_tls(parser)
    add_resilience(parser, without=_NOT_OURS)
    serve.add_admin(parser)
    parser.add_argument(
        "--pages",
        metavar="HOST:PORT",
        help="where to listen for /health, /ready and /metrics, over HTTP",
    )
    parser.set_defaults(listen=DEFAULT_LISTEN, hold_requests=0, ui=False, ui_hosts=None)


def run(arguments: argparse.Namespace) -> int:
    """Pick until told to stop; the exit code."""
    from pointsman.picker.process import run
    from pointsman.router.listening import is_loopback

    settings = _settings(arguments)
    router = settings.router
    if settings.identity is None and not is_loopback(router.host):
        _complain(
            f"{router.host} can be reached from other machines, and gRPC is not encrypted"
            " (see --tls-certificate)"
        )

    def announce(where: str) -> None:
        policy, replicas = router.rules.policy.label, len(router.replicas)
        print(f"listening on {where}; policy {policy}; replicas: {replicas}", flush=True)

    run(settings, announce, _complain)
    return 0


def _complain(message: str) -> None:
    print(f"pointsman: {message}", file=sys.stderr, flush=True)


def _settings(arguments: argparse.Namespace) -> PickerSettings:
    from pointsman.picker.process import PickerSettings
    from pointsman.picker.tls import identity_in

    pages, certificate = arguments.pages, arguments.tls_certificate
    router = serve.settings_of(arguments)  # refuses a certificate without a key
    return PickerSettings(
        router,
        None if pages is None else serve.host_and_port("--pages", pages),
        None if certificate is None else identity_in(certificate, arguments.tls_key),
    )
