"""How this Pointsman was installed, and so how an extra is added to it."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from importlib import metadata
from urllib.parse import unquote, urlparse

PACKAGE = "pointsman"


@dataclass(frozen=True, slots=True)
class Source:
    """What pip was given: a folder, or the package's name."""

    text: str = PACKAGE
    is_editable: bool = False

    def command(self, extra: str) -> str:
        """How an extra is added to such an install."""
        flag = "--editable " if self.is_editable else ""
        return f"pip install {flag}{shlex.quote(f'{self.text}[{extra}]')}"


def source_of(direct_url: str | None) -> Source:
    """What the metadata's direct_url.json says (PEP 610); None: it came from an index.

    One that is damaged says nothing: it is told how extras come from an index.
    """
    try:
        told = {} if direct_url is None else json.loads(direct_url)
    except ValueError:
        told = {}
    parts = urlparse(str(told.get("url", "")))
    if parts.scheme != "file":
        return Source()
    return Source(unquote(parts.path), bool(told.get("dir_info", {}).get("editable", False)))


def install_command(extra: str) -> str:
    """How the extra is added to the Pointsman that runs."""
    try:
        told = metadata.distribution(PACKAGE).read_text("direct_url.json")
    except metadata.PackageNotFoundError:  # run from its sources
        told = None
    return source_of(told).command(extra)


def lacks(module: str, extra: str) -> str:
    """What to say where a module cannot be imported: which extra brings it, and how."""
    return f"{module} is not installed; it comes with the extra [{extra}]: {install_command(extra)}"
