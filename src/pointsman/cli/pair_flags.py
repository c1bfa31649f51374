"""The flags of ``serve`` where prefill and decode are apart."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pointsman.core.errors import InputError

if TYPE_CHECKING:
    from pointsman.router.handoff.protocols import HandOffSettings
    from pointsman.router.replica_options import ReplicaOptions

HANDOFFS = ("nixl", "shared_storage", "sglang", "llamacpp")
FLAGS = ("prefill", "decode")


def add_pairs(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    for role, does in (("prefill", "compute prompts"), ("decode", "generate")):
        parser.add_argument(
            f"--{role}",
            nargs="+",
            action="extend",
            metavar="URL",
            dest=f"{role}_urls",
            help=f"servers that {does}, in place of --replica; wants --handoff",
        )
    parser.add_argument(
        "--handoff",
        metavar="NAME",
        help=f"how a prefill server's KV cache gets to a decode server: {', '.join(HANDOFFS)}",
    )
    parser.add_argument(
        "--handoff-timeout-ms",
        type=float,
        default=10_000.0,
        metavar="MS",
        help="how long each call that moves a cache may take (default: %(default)s)",
    )
    parser.add_argument(
        "--bootstrap-port",
        type=int,
        default=8998,
        metavar="N",
        help="of SGLang's prefill servers (default: %(default)s)",
    )


def replicas_by_role(arguments: argparse.Namespace) -> list[ReplicaOptions] | None:
    """Those that --prefill and --decode name; None where neither is given.

    Raises InputError where they do not go with the other flags.
    """
    from pointsman.router.replica_options import ROLES, ReplicaOptions
    from pointsman.router.upstream import replica_address

    given = {role: getattr(arguments, f"{role}_urls") for role in ROLES}
    if all(urls is None for urls in given.values()):
        return None
    if arguments.replica_urls is not None:
        raise InputError("--replica: does not go with --prefill and --decode; expected one kind")
    return [
        ReplicaOptions(replica_address(url, f"--{role}"), role=role)
        for role, urls in given.items()
        for url in urls or ()
    ]


def handoff_of(
    arguments: argparse.Namespace, replicas: list[ReplicaOptions]
) -> HandOffSettings | None:
    """How these replicas hand over; None where they do not.

    Raises InputError for roles without a protocol, a protocol without roles, and what does not go
    with either.
    """
    from pointsman.router.handoff.protocols import HandOffSettings
    from pointsman.router.pairing import check_roles

    if arguments.handoff is None:
        if any(replica.role is not None for replica in replicas):
            raise InputError(
                "--prefill, --decode: want --handoff, which says how a cache gets from one to the"
                f" other; expected one of {', '.join(HANDOFFS)}"
            )
        return None
    settings = HandOffSettings(
        arguments.handoff, arguments.handoff_timeout_ms, arguments.bootstrap_port
    )
    check_roles(replicas)
    if arguments.hold_ms is not None:
        raise InputError("--hold-ms: does not go with --prefill and --decode; expected one")
    return settings
