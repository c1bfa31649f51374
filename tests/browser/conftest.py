"""A real browser: Chromium, driven by Playwright. Without either, these tests are skipped."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@dataclass
class Seen:
    """What a page did: messages of its console that are no mere information, errors that nobody
    caught, and the URLs that it asked for."""

    errors: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def watch(self, page) -> None:
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))

    def _hear(self, message) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)


@pytest.fixture(scope="module")  # while one is open, its loop runs in this thread
def browser() -> Iterator:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = os.environ.get("POINTSMAN_CHROMIUM") or next(
        filter(None, map(shutil.which, NAMES)), ""
    )
    if not program:
        pytest.skip(f"none of {', '.join(NAMES)} is on PATH, and POINTSMAN_CHROMIUM names none")
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium has none for root
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=program, args=sandbox)
        yield opened
        opened.close()


@pytest.fixture
def seen() -> Seen:
    """What the test's page did."""
    return Seen()


@pytest.fixture
def page(browser, seen) -> Iterator:
    """A page in a context of its own."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(20_000)
    opened = context.new_page()
    seen.watch(opened)
    yield opened
    context.close()
