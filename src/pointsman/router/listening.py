"""Sockets that listen, and where."""

from __future__ import annotations

import ipaddress
import socket

from pointsman.core.errors import MachineError

BACKLOG = 1024  # connections that wait to be taken; one more waits a second to try again


def listener_on(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one. Raises MachineError where it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        why = str(error.strerror).partition(" (while")[0]  # Python repeats the address
        raise MachineError(f"cannot listen on {host}:{port}: {why}") from error


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
