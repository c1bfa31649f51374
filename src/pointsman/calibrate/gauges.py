"""The gauges of a recorded engine, sampled at a fixed step: ``timeseries.csv``."""

from __future__ import annotations

import csv
import io
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pointsman.core.errors import InputError, missing_field, wrong_value
from pointsman.core.files import read_file
from pointsman.workload.workload import Floats

COLUMNS = ("t", "gen_throughput", "running", "waiting", "kv_cache_pct")


@dataclass(frozen=True, eq=False)
class Gauges:
    """Samples in the order of time; the clock of ``t_ms`` is neither the engine's nor the client's.

    ``generated_tokens`` counts all output tokens from the start of the recording.
    """

    t_ms: Floats
    generated_tokens: Floats
    running: Floats
    waiting: Floats
    kv_used_fraction: Floats


def read_gauges(path: Path) -> Gauges:
    """The gauges of a file.

    Raises InputError for a column that is missing, a cell that is no number >= 0, or a time that
    is not after the one before.
    """
    reader = csv.DictReader(io.StringIO(read_file(path).decode("utf-8", "replace")))
    for name in COLUMNS:
        if name not in (reader.fieldnames or ()):
            raise missing_field(str(path), name, "it in the header")
    rows = [
        [_cell(row[name], name, f"{path} line {number}") for name in COLUMNS]
        for number, row in enumerate(reader, start=2)
    ]
    t, throughput, running, waiting, percent = np.array(rows).reshape(-1, len(COLUMNS)).T
    steps = np.diff(t, prepend=0.0)
    if np.any(steps <= 0):
        line = int(np.flatnonzero(steps <= 0)[0]) + 2
        raise InputError(f"{path} line {line}: t does not grow; expected ascending times > 0")
    return Gauges(t * 1e3, np.cumsum(throughput * steps), running, waiting, percent / 100.0)


def _cell(text: str | None, name: str, where: str) -> float:
    try:
        value = float(text or "")
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise wrong_value(where, name, text, "a number >= 0")
    return value
