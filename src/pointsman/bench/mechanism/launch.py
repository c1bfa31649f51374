"""torchrun for a mechanism run: what is missing for it, the command, and what comes of it."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pointsman.bench.mechanism.asked import SAYS, MechanismAsked, check_is_new
from pointsman.bench.mechanism.ranks import INSTALL, imported_torch, torch_fault
from pointsman.bench.mechanism.result import read_result
from pointsman.bench.missing import Missing
from pointsman.core.errors import InputError, MachineError
from pointsman.core.files import read_file
from pointsman.evidence.envelope import MechanismRun

_LAST_LINES = 5
_STOP_S = 40.0  # torchrun gives its ranks 30 s to end


@dataclass(frozen=True, slots=True)
class Machine:
    """What this machine has for a run."""

    torch_fault: str | None  # why there is no torch
    gpus: int
    torchrun: str | None  # its path


def found_machine() -> Machine:
    """What is here. Imports torch, which takes seconds."""
    torchrun = shutil.which("torchrun", path=_paths())
    fault = torch_fault()
    if fault is not None:
        return Machine(fault, 0, torchrun)
    torch = imported_torch()
    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return Machine(None, gpus, torchrun)


def _paths() -> str:
    """Beside this Python first: another one's torchrun would not find pointsman."""
    return os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))


@dataclass(frozen=True, slots=True)
class Launch:
    """A run to be started: what is asked, on how many ranks, on GPUs or on the CPU."""

    asked: MechanismAsked
    ranks: int = 2
    on_gpus: bool = True

    def missing(self, machine: Machine) -> tuple[Missing, ...]:
        """Everything that is not there, each with what to do."""
        found = []
        if machine.torch_fault is not None:
            found.append(Missing(f"torch ({machine.torch_fault})", INSTALL))
        if machine.torchrun is None:
            found.append(Missing("torchrun, beside this Python or on PATH", INSTALL))
        if self.on_gpus and machine.gpus < self.ranks:
            found.append(
                Missing(
                    f"{self.ranks} GPUs, one for each rank; torch sees {machine.gpus}",
                    "run it on a machine that has them, with a torch built for them, or on the CPU"
                    " with --cpu",
                )
            )
        try:
            check_is_new(self.asked.output)
        except InputError:
            found.append(
                Missing(
                    f"a new name for the result: {self.asked.output} is already there, and results"
                    " are never overwritten",
                    "another --run-label or --output",
                )
            )
        return tuple(found)

    def command(self, torchrun: str = "torchrun") -> list[str]:
        """What starts the ranks."""
        return [
            *(torchrun, "--standalone", "--nproc_per_node", str(self.ranks)),
            *("-m", "pointsman.bench.mechanism"),
            *self.asked.words(),
        ]

    def shown(self) -> str:
        """The command as one types it."""
        hidden = "" if self.on_gpus else "CUDA_VISIBLE_DEVICES= "
        return hidden + shlex.join(self.command())

    def run(self, torchrun: str, say: Callable[[str], None]) -> MechanismRun:
        """Start the ranks and wait for them; ``say`` gets what rank 0 says, as it says it.

        Raises MachineError where the run failed; what rank 0 wrote then says why.
        """
        environment = dict(os.environ)
        environment.setdefault("OMP_NUM_THREADS", "1")  # torchrun's own default, said aloud
        if not self.on_gpus:
            environment["CUDA_VISIBLE_DEVICES"] = ""
        spoke = False
        last: deque[str] = deque(maxlen=_LAST_LINES)
        with _started(self.command(torchrun), environment) as ranks:
            assert ranks.stderr is not None
            for line in ranks.stderr:
                if line.startswith(SAYS):
                    spoke = True
                    say(line.removeprefix(SAYS).rstrip())
                elif line.strip():
                    last.append(line.rstrip())
            code = ranks.wait()
        if code == 0:
            return read_result(self.asked.output, read_file(self.asked.output))
        if spoke and os.path.lexists(self.asked.output):
            raise MachineError(f"mechanism: the run failed; {self.asked.output} says why")
        lines = "".join(f"\n  {line}" for line in last)
        raise MachineError(
            f"mechanism: torchrun ended with {code} and there is no result; its last lines:{lines}"
        )


@contextmanager
def _started(command: list[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """A process that has ended when the block has."""
    try:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is ours to hand on, once
        )
    except OSError as error:
        raise MachineError(f"cannot start {command[0]}: {error.strerror}") from None
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                _stop(process)


def _stop(process: subprocess.Popen[str]) -> None:
    """torchrun hands the signal on, and rank 0 writes that it was interrupted."""
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=_STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
