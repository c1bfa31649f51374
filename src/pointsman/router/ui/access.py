"""Who may look at the live page: whoever may ask the router at all, and no other web site.

    DNS rebinding    a site gives its own name to our address: ``Host`` is then that name. Only
                     addresses, ``localhost`` and names that were told are taken.
    other origins    a site asks us from its own page: browsers then send ``Origin``, or say so in
                     ``Sec-Fetch-Site``. Both are refused.

Sources: the Fetch standard (``Origin``), the W3C's "Fetch Metadata Request Headers".
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from pointsman.core.errors import shown
from pointsman.router.answers import Answer, refusal
from pointsman.router.messages import ClientRequest

LOCALHOST = "localhost"
OWN_SITE = (b"same-origin", b"none")  # none: typed into the address bar


@dataclass(frozen=True, slots=True)
class UiSettings:
    """``names``: by which browsers may ask for the page, beside addresses and ``localhost``."""

    names: frozenset[str] = frozenset()


def refusal_of_page(request: ClientRequest, settings: UiSettings) -> Answer | None:
    """Why the page, which tells nothing of itself, is not given; None: it is."""
    if request.method not in (b"GET", b"HEAD"):
        return refusal(405, "the live page is asked for with GET", "method_not_allowed")
    host = request.header(b"host") or b""
    if _is_ours(host, settings.names):
        return None
    name = shown(host.decode("latin-1"))
    message = f"the page was asked for as {name}; expected an address, localhost or a --ui-host"
    return refusal(403, message, "forbidden")


def refusal_of_state(request: ClientRequest, settings: UiSettings) -> Answer | None:
    """Why the page's figures are not given; None: they are."""
    site = request.header(b"sec-fetch-site")
    if request.header(b"origin") is not None or site not in (None, *OWN_SITE):
        return refusal(403, "other web sites may not look at the live page", "forbidden")
    return refusal_of_page(request, settings)


def _is_ours(host: bytes, names: frozenset[str]) -> bool:
    name = _without_port(host.decode("latin-1")).lower().removesuffix(".")
    if name == LOCALHOST or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _without_port(host: str) -> str:
    """Of ``name``, ``name:8080``, ``[::1]`` and ``[::1]:8080``; of anything else nothing."""
    if host.startswith("["):
        name, _, rest = host[1:].partition("]")
        port = rest.removeprefix(":")
        return name if not rest or (rest != port and port.isdecimal()) else ""
    name, colon, port = host.partition(":")
    return name if not colon or port.isdecimal() else ""
