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
    GroupError where it fails, or leaves no sound file; it ends with us, whatever ends us.
    """
    result, log = (folder / f"{run.name}.json").absolute(), logs / f"{run.name}.log"
    words = [word.replace(RESULT_WORD, str(result)) for word in run.group.command]
    with stage(STAGE):
        process = Process(words, log, {RESULT_VARIABLE: str(result)}, _GRACE_S)
    try:
        while process.code is None:
            time.sleep(_PAUSE_S)
    finally:
        process.stop()
    if process.code != 0:
        raise GroupError(
            STAGE, f"{words[0]} ended with {process.code}; its last lines:\n{process.last_lines()}"
        )
    if not result.is_file():
        raise GroupError(STAGE, f"{words[0]} ended well and wrote no {result}")
    with stage(STAGE):
        problems = check_file(result).problems
    if problems:
        raise GroupError(STAGE, f"{words[0]} wrote no sound evidence: {problems[0].text}")
    return result
