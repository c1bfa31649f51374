"""Where the material beside the checkout lies, when it does; how hypothesis runs."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest

# A timing never fails a test; what the generator finds slow is a busy machine.
hypothesis.settings.register_profile(
    "pointsman",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    print_blob=True,
)
hypothesis.settings.load_profile("pointsman")

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"


def shared_file(relative: str) -> Path:
    path = SHARED / relative
    if not path.is_file():
        pytest.skip(f"{relative} is not beside this checkout")
    return path


@pytest.fixture(scope="session")
def shared():
    """A file of the material beside the checkout; skips where it is absent."""
    return shared_file
