"""A group's own program in place of ours: it has to write the group's result, as in the lesson."""

from __future__ import annotations

import time
from pathlib import Path

from pointsman.bench.engines.processes import Process
from pointsman.bench.experiment import GroupRun
from pointsman.bench.groups import GroupError, stage
from pointsman.evidence.checking import check_file

RESULT_VARIABLE = "POINTSMAN_RESULT"
RESULT_WORD = "{result}"
STAGE = "command"
_PAUSE_S = 0.1
_GRACE_S = 10.0


def run_command(run: GroupRun, folder: Path, logs: Path) -> Path:
    """Run it until it ends; the file that it wrote.

    It is told where by the variable POINTSMAN_RESULT, and by ``{result}`` in its words. Raises
    GroupError where it fails, leaves no sound file, or one that states a failure. Only a file that
    states its failure stays then; any other is moved to the logs, so that nobody takes it for a
    result. It ends with us, whatever ends us.
    """
    result, log = (folder / f"{run.name}.json").absolute(), logs / f"{run.name}.log"
    words = [word.replace(RESULT_WORD, str(result)) for word in run.group.command]
    try:
        with stage(STAGE):
            process = Process(words, log, {RESULT_VARIABLE: str(result)}, _GRACE_S)
        try:
            while process.code is None:
                time.sleep(_PAUSE_S)
        finally:
            process.stop()
    except BaseException:  # told to end: what it has by then is no result
        if result.is_file():
            _moved(result, logs)
        raise
    ended = None if process.code == 0 else _ended(words[0], process)
    if not result.is_file():
        raise GroupError(STAGE, ended or f"{words[0]} ended well and wrote no {result}")
    with stage(STAGE):
        report = check_file(result)
    if report.is_sound and report.failure is not None:
        raise GroupError(STAGE, f"{words[0]} says that it failed at {report.failure}")
    if report.is_sound and ended is None:
        return result
    why = ended or f"{words[0]} wrote no sound evidence: {report.problems[0].text}"
    left = _moved(result, logs)
    raise GroupError(STAGE, f"{why}\nwhat it wrote is {left}")


def _ended(program: str, process: Process) -> str:
    return f"{program} ended with {process.code}; its last lines:\n{process.last_lines()}"


def _moved(result: Path, logs: Path) -> Path:
    """Its new place, which is free: the folder of logs is the label's."""
    left = logs / f"{result.stem}.left.json"
    result.rename(left)
    return left
