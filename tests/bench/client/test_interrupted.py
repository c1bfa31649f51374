"""Ctrl-C on a process that measures leaves what was measured."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys

import pytest

from tests.bench.client.stand_in import StandInEngine, run
from tests.interrupts import interruptible

MEASURES = """
import json, sys
from pointsman.bench.client.load import Load
from pointsman.bench.client.measure import measure
from pointsman.bench.client.progress import Watch
from pointsman.bench.client.target import Target
from tests.bench.client.loads import requests
tell = lambda at: print("ended", at.ended, flush=True)
result = measure(Target(sys.argv[1], "m"), Load(requests(5000, gap_ms=10.0)), Watch(tell, 20.0))
print(json.dumps([result.is_complete, len(result.rows), result.planned]), flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_load_and_keeps_what_was_measured(number):
    async def main():
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, os.getcwd()])}
        async with StandInEngine() as engine:
            with interruptible():
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", MEASURES, engine.url,
                    stdout=asyncio.subprocess.PIPE, env=environment,
                )  # fmt: skip
            ended = 0
            while ended < 3:
                ended = int((await process.stdout.readline()).split()[1])
            process.send_signal(number)
            rest = await process.stdout.read()
            return await process.wait(), json.loads(rest.splitlines()[-1])

    code, (is_complete, rows, planned) = run(main())
    assert code == 0
    assert not is_complete
    assert 0 < rows < planned == 5000
