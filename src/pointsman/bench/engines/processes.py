"""Programs as process groups that are always stopped, and whose logs are kept."""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pointsman.bench.engines import supervisor
from pointsman.core.errors import MachineError

_LAST_BYTES = 8192
_LEAST_PORT = 10_240
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_ATTEMPTS = 200


class Process:
    """A program that ends with ``stop``, and with us, whatever ends us: SIGKILL too.

    A supervisor of its own holds the other end of a pipe of ours (``supervisor.py``). What the
    program writes is appended to ``log``, after a line with the command. Raises MachineError
    where it cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        grace_s: float,
    ) -> None:
        self.command = tuple(command)
        self.log = log
        self._grace_s = grace_s
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "ab") as output:
            output.write(f"$ {shown(command, environment)}\n".encode())
            output.flush()
            self._said_from = output.tell()
            self._supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", supervisor.__file__, str(grace_s), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env={**os.environ, **environment},
                start_new_session=True,
                text=True,
            )
        try:
            self.group = self._group()
        except BaseException:  # told to end, say: nobody has us yet, so nobody else would stop it
            self.tell_to_stop()
            self._supervisor.wait()
            self._close()
            raise

    def _group(self) -> int:
        assert self._supervisor.stdout is not None
        word, _, rest = self._supervisor.stdout.readline().strip().partition(" ")
        if word != "started":
            self._supervisor.wait()
            raise MachineError(
                f"{self.command[0]}: cannot be started: {rest or self.last_lines()}; the whole"
                f" command is in {self.log}"
            )
        return int(rest)

    @property
    def code(self) -> int | None:
        """The program's exit code, 128 + N after signal N; None while it runs."""
        return self._supervisor.poll()

    def stand_back(self, niceness: int) -> None:
        """Its session as a whole, where Linux weighs sessions and not processes (autogroups): there
        ``nice`` tells apart nothing but the processes of one. Source: sched(7)."""
        with contextlib.suppress(OSError):
            Path(f"/proc/{self.group}/autogroup").write_text(str(niceness))

    def members(self) -> list[int]:
        """The processes of the group; none where there is no /proc."""
        return supervisor.group_members(self.group)

    def tell_to_stop(self) -> None:
        """SIGTERM, and in time SIGKILL; does not wait."""
        assert self._supervisor.stdin is not None
        self._supervisor.stdin.close()

    def stop(self) -> None:
        """Returns when all of it has ended."""
        self.tell_to_stop()
        try:
            self._supervisor.wait(4.0 * self._grace_s + 5.0)
        except subprocess.TimeoutExpired:
            self.kill()
        self._close()

    def kill(self) -> None:
        """It dies at once, without a word to those that it serves."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.group, signal.SIGKILL)
        self._supervisor.wait()

    def last_lines(self, count: int = 12) -> str:
        """What it wrote last; of this start, where the log has several."""
        with open(self.log, "rb") as said:
            end = said.seek(0, os.SEEK_END)
            said.seek(max(self._said_from, end - _LAST_BYTES))
            lines = said.read().decode(errors="replace").splitlines()[-count:]
        return "\n".join(lines) or "(nothing)"

    def _close(self) -> None:
        assert self._supervisor.stdout is not None
        self._supervisor.stdout.close()


def shown(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """The command as a shell takes it."""
    words = [f"{name}={shlex.quote(value)}" for name, value in environment.items()]
    return " ".join([*words, shlex.join(command)])


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on, all different.

    Below those that outgoing connections get: an engine that binds late finds its port free.
    """
    first = _first_ephemeral()
    with contextlib.ExitStack() as held:
        found: list[int] = []
        for _ in range(_ATTEMPTS * count):
            if len(found) == count:
                break
            wanted = _LEAST_PORT + secrets.randbelow(first - _LEAST_PORT) if first else 0
            with contextlib.suppress(OSError):
                listener = held.enter_context(socket.create_server(("127.0.0.1", wanted)))
                found.append(listener.getsockname()[1])
    if len(found) < count:
        raise MachineError(f"127.0.0.1: {len(found)} free ports found; expected {count}")
    return found


def _first_ephemeral() -> int:
    """0: not known, or no room below."""
    try:
        first = int(_EPHEMERAL.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 0
    return first if first > 2 * _LEAST_PORT else 0
