"""The documentation as a site; that its links hold is checked by `make docs`, in CI."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
NAVIGATION = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]


def test_every_page_has_one_place_in_the_navigation():
    placed = re.findall(r": (\S+\.md)$", NAVIGATION, flags=re.MULTILINE)
    assert sorted(placed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))
