"""Calibrated costs as a file; what is in it stands in ``costs/calibrated.py``."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pointsman.core.files import whole_file
from pointsman.costs.calibrated import CostFile


def write_cost_file(path: Path, content: CostFile) -> None:
    """Write it, whole or not at all."""
    text = msgspec.json.format(msgspec.json.encode(content), indent=2)
    with whole_file(path) as file:
        file.write(text + b"\n")
