"""HTML and SVG from values; text is escaped, whoever wrote it."""

from __future__ import annotations

import html
from collections.abc import Iterable

Attributes = dict[str, str]


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


def escaped(text: str) -> Markup:
    """Text as markup; markup stays as it is, control characters are shown by their code."""
    if isinstance(text, Markup):
        return text
    shown = "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)
    return Markup(html.escape(shown))


def tag(name: str, attributes: Attributes | None = None, *children: str) -> Markup:
    """An element with its children, each a text or markup."""
    listed = "".join(f' {key}="{escaped(text)}"' for key, text in (attributes or {}).items())
    return Markup(f"<{name}{listed}>{''.join(map(escaped, children))}</{name}>")


def joined(parts: Iterable[str]) -> Markup:
    """Parts behind one another."""
    return Markup("".join(map(escaped, parts)))
