"""docs/failures.md names tests that exist, and every id once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "failures.md").read_text()


@pytest.mark.parametrize("named", sorted(set(re.findall(r"`(tests/\S+?::\w+)`", PAGE))))
def test_every_test_that_is_named_exists(named):
    file, name = named.split("::")
    assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), flags=re.MULTILINE)


def test_every_known_id_stands_on_the_page_once(shared):
    known = re.findall(r"^\| ([SRB]\d+) ", shared("design/FAILURES.md").read_text(), re.MULTILINE)
    listed = re.findall(r"\b[SRB]\d+\b", PAGE)
    assert sorted(listed) == sorted(known)
