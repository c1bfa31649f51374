"""Lines of a test as a trace that was read."""

from __future__ import annotations

import pytest

from pointsman.workload.formats import read_workload
from pointsman.workload.reading import ReadOptions


@pytest.fixture
def read(tmp_path):
    def read(*lines: str, **options):
        path = tmp_path / "t"
        path.write_text("\n".join(lines) + "\n")
        return read_workload(path, ReadOptions(**options))

    return read
