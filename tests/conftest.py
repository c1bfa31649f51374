"""Where the material beside the checkout lies, when it does."""

from __future__ import annotations

from pathlib import Path

import pytest

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
