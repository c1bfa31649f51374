"""The flags of ``serve`` that say who may ask, how much and how slowly, and what a session is."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.core.errors import InputError

if TYPE_CHECKING:
    from ssl import SSLContext

    from pointsman.router.api_keys import ApiKeys
    from pointsman.router.edge import EdgeLimits
    from pointsman.router.sessions import Sessions

_KB, _MB = 1 << 10, 1 << 20

# flag, type, metavar, default, help. The defaults are those of EdgeLimits; a test compares them.
_LIMITS = (
    ("--max-connections", int, "N", 4096, "open connections of clients at most"),
    ("--max-headers", int, "N", 100, "headers of a request at most"),
    ("--max-head-kb", int, "KB", 64, "of a request's head, and of a trailer, at most"),
    ("--max-body-mb", int, "MB", 64, "of a request's body at most"),
    ("--client-head-timeout-s", float, "S", 10.0, "how long a head may take to come"),
    ("--client-body-timeout-s", float, "S", 30.0, "how long a body may bring nothing"),
    ("--client-idle-timeout-s", float, "S", 75.0, "how long a connection may be idle"),
    ("--client-write-timeout-s", float, "S", 60.0, "how long a client may take no byte"),
)


def add_edge(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    group = parser.add_argument_group("clients")
    group.add_argument(
        "--api-keys",
        type=Path,
        metavar="FILE",
        help="keys that clients must show, one a line; read again when it changes, or on SIGHUP",
    )
    group.add_argument(
        "--forward-authorization",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="with --api-keys, pass the client's key on to the replica",
    )
    add_tls(group)
    for flag, kind, metavar, default, text in _LIMITS:
        group.add_argument(
            flag, type=kind, default=default, metavar=metavar, help=f"{text} (default: %(default)s)"
        )


def add_tls(parser: argparse._ActionsContainer) -> None:
    """Declare the flags of TLS towards those who connect."""
    parser.add_argument(
        "--tls-certificate",
        type=Path,
        metavar="FILE",
        help="speak TLS with this certificate and those it rests on, in PEM; with --tls-key",
    )
    parser.add_argument(
        "--tls-key", type=Path, metavar="FILE", help="the certificate's key, without a password"
    )


def add_body_limit(parser: argparse.ArgumentParser) -> None:
    """Declare the one flag of clients that are somebody else's; the others have their defaults."""
    for flag, kind, metavar, default, text in _LIMITS:
        if flag == "--max-body-mb":
            shown = f"{text} (default: %(default)s)"
            parser.add_argument(flag, type=kind, default=default, metavar=metavar, help=shown)
        else:
            parser.set_defaults(**{flag.lstrip("-").replace("-", "_"): default})
    parser.set_defaults(api_keys=None, forward_authorization=False)


def add_sessions(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of sessions. Their defaults are those of Sessions; a test compares them."""
    group = parser.add_argument_group("sessions")
    group.add_argument(
        "--session-header",
        default="x-session-id",
        metavar="NAME",
        help="the header that names a request's session (default: %(default)s)",
    )
    group.add_argument(
        "--session-from-user",
        action=argparse.BooleanOptionalAction,
        default=False,
        help="without that header, take the body's user for the session",
    )
    group.add_argument(
        "--session-ttl-s",
        type=float,
        default=3600.0,
        metavar="S",
        help="how long after its last request a session keeps its replica (default: %(default)s)",
    )
    group.add_argument(
        "--session-key",
        type=Path,
        metavar="FILE",
        help="a secret, the same for all routers that are to tell the same sessions",
    )


def sessions_of(arguments: argparse.Namespace) -> Sessions:
    """What the flags say of sessions."""
    from pointsman.router.sessions import Sessions, read_session_key

    file = arguments.session_key
    key = {} if file is None else {"key": read_session_key(file)}
    return Sessions(
        header=arguments.session_header.lower(),
        from_user=arguments.session_from_user,
        ttl_ms=arguments.session_ttl_s * 1000.0,
        **key,
    )


def limits_of(arguments: argparse.Namespace) -> EdgeLimits:
    """The limits that the flags set. Raises InputError for what is none."""
    from pointsman.router.edge import EdgeLimits

    return EdgeLimits(
        max_connections=arguments.max_connections,
        max_headers=arguments.max_headers,
        max_head_bytes=arguments.max_head_kb * _KB,
        max_body_bytes=arguments.max_body_mb * _MB,
        head_timeout_s=arguments.client_head_timeout_s,
        body_timeout_s=arguments.client_body_timeout_s,
        idle_timeout_s=arguments.client_idle_timeout_s,
        write_timeout_s=arguments.client_write_timeout_s,
    )


def tls_of(arguments: argparse.Namespace) -> SSLContext | None:
    """What TLS is spoken with; None where it is not."""
    from pointsman.router.tls import server_context

    certificate, key = arguments.tls_certificate, arguments.tls_key
    if (certificate is None) != (key is None):
        raise InputError("--tls-certificate and --tls-key: one was given; expected both")
    return None if certificate is None else server_context(certificate, key)


def keys_of(arguments: argparse.Namespace) -> ApiKeys | None:
    """The keys, where there is a file of them."""
    from pointsman.router.api_keys import ApiKeys

    if arguments.api_keys is None:
        if arguments.forward_authorization:
            raise InputError("--forward-authorization: does nothing without --api-keys")
        return None
    return ApiKeys(arguments.api_keys, forwarded=arguments.forward_authorization)
