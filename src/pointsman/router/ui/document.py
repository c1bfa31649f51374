"""The live page as one document that asks for nothing but ``/ui/state``."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from importlib.resources import files

from pointsman.router.answers import Answer

_HTML = (b"content-type", b"text/html; charset=utf-8")
_STYLE, _SCRIPT = b"/* page.css */", b"/* page.js */"  # where each of them goes

NEVER_KEPT = (b"cache-control", b"no-store")
NEVER_GUESSED = (b"x-content-type-options", b"nosniff")


def page() -> Answer:
    """Style and script stand in it, and by their digests no others are run."""
    folder = files(__package__)
    style, script = (folder.joinpath(f"page.{kind}").read_bytes() for kind in ("css", "js"))
    html = folder.joinpath("page.html").read_bytes()
    body = html.replace(_STYLE, style).replace(_SCRIPT, script)
    headers = (
        (b"content-security-policy", _policy(style, script)),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"referrer-policy", b"no-referrer"),
        (b"x-frame-options", b"DENY"),
        NEVER_GUESSED,
        NEVER_KEPT,
    )
    return Answer(200, body, headers, _HTML)


def _policy(style: bytes, script: bytes) -> bytes:
    """Nothing from anywhere but these two. The icon, an empty one, is ``data:``: else browsers ask
    for one, and the router would send that to a replica."""
    rules = (
        b"default-src 'none'",
        b"script-src " + _digest(script),
        b"style-src " + _digest(style),
        b"img-src data:",
        b"connect-src 'self'",
        b"base-uri 'none'",
        b"form-action 'none'",
        b"frame-ancestors 'none'",
    )
    return b"; ".join(rules)


def _digest(text: bytes) -> bytes:
    return b"'sha256-" + b64encode(sha256(text).digest()) + b"'"
