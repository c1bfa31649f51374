"""Sockets that listen, and where."""

from __future__ import annotations

import errno
import ipaddress
import socket

from pointsman.core.errors import MachineError

MAX_PORT = 65535
BACKLOG = 1024  # connections that wait to be taken; one more waits a second to try again


def listener_on(host: str, port: int, flag: str = "--listen") -> socket.socket:
    """A socket that listens; port 0 takes a free one. Raises MachineError where it cannot, with
    another value for the flag where the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        why = str(error.strerror).partition(" (while")[0]  # Python repeats the address
        is_taken = error.errno == errno.EADDRINUSE
        hint = other_port(flag, host, port) if is_taken else ""
        raise MachineError(f"cannot listen on {host}:{port}: {why}{hint}") from error


def other_port(flag: str, host: str, port: int) -> str:
    """What to try where a port is taken."""
    where, near = f"[{host}]" if ":" in host else host, port + (1 if port < MAX_PORT else -1)
    return f"; try {flag} {where}:{near}, or {where}:0 for a free port"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def url_of(listener: socket.socket, scheme: str = "http") -> str:
    """Where the socket listens."""
    host, port = listener.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
