"""Whether a request's head leaves no doubt about where the request ends and whom it is for.

A doubt is how one request is smuggled within another: two servers see different ends. What llhttp
refuses by itself (two lengths or one of each kind, sizes that are no numbers, folded lines, a space
before a colon, bare line feeds) is not looked at again.
"""

from __future__ import annotations

from pointsman.router.messages import Fields, Headers


def is_framed(version: str, headers: Headers, fields: Fields) -> bool:
    """``chunked`` alone, once, and not in HTTP/1.0; one Host. Source: RFC 9112, 6.1 and 3.2."""
    if version not in ("1.0", "1.1"):
        return False
    if len(fields) == len(headers) and b"transfer-encoding" not in fields:
        return True  # no name is there twice
    names = [name for name, _ in headers]
    if names.count(b"host") > 1:
        return False
    if b"transfer-encoding" not in names:
        return True
    codings = [value.strip().lower() for name, value in headers if name == b"transfer-encoding"]
    return codings == [b"chunked"] and version == "1.1"
