"""Pages of engines; each says in its first line where it is from."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "fixtures"
PAGES = sorted(path.name for path in FOLDER.glob("*.txt"))


def page(name: str) -> str:
    return (FOLDER / name).read_text()
