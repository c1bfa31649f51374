"""The documentation as a site, opened from the disk."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for needed in ("material", "jieba"):
        if find_spec(needed) is None:
            pytest.skip(f"{needed} is missing: pip install pointsman[docs]")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize(
    ("words", "found"), [("hand-off", "4. Prefill, decode"), ("副本路由", "副本")]
)
def test_search_finds_words_of_both_languages_and_fetches_nothing(site, page, seen, words, found):
    page.goto((site / "index.html").as_uri())
    page.keyboard.press("s")
    page.locator("[data-md-component=search-query]").fill(words)
    page.keyboard.press("End")
    results = page.locator(".md-search-result__list")
    results.locator("li").first.wait_for()
    assert found in results.inner_text().replace("\u200b", "")
    assert [url for url in seen.asked if not url.startswith("file:")] == []
    assert seen.errors == []
