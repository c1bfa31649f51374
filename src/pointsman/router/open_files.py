"""How many connections of clients there are files for.

Each is an open file, and so is the one to the replica that answers it. Without files connections to
replicas cannot be made, nor probes, so clients are not let have them all.
"""

from __future__ import annotations

import resource

from pointsman.core.errors import MachineError
from pointsman.router.edge import Complain

FILES_A_CLIENT = 2
FILES_A_REPLICA = 3  # a probe, its metrics and its models, all at once
OTHER_FILES = 64  # the event loop's, logs, and some to spare


def raised_limit(wanted: int) -> int:
    """Let the process open so many files, as far as the system allows it; how many it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):  # a system with a limit that it does not tell
        return soft
    return most


def clients_with_files(wanted: int, replicas: int, complain: Complain) -> int:
    """How many of the wanted connections of clients there are files for; says so if not for all.

    Raises MachineError where there are none for a single one.
    """
    others = FILES_A_REPLICA * replicas + OTHER_FILES
    needed = FILES_A_CLIENT * wanted + others
    files = raised_limit(needed)
    if files >= needed:
        return wanted
    clients = (files - others) // FILES_A_CLIENT
    if clients < 1:
        raise MachineError(
            f"the system lets a process open {files} files; expected at least"
            f" {others + FILES_A_CLIENT} for {replicas} replicas (see ulimit -n)"
        )
    complain(
        f"--max-connections {wanted} takes {needed} open files, the system allows {files}"
        f" (see ulimit -n): no more than {clients} connections are taken"
    )
    return clients
