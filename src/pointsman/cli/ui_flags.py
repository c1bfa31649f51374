"""The flags of the router's live page."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pointsman.core.errors import InputError, wrong_value

if TYPE_CHECKING:
    from pointsman.router.ui.access import UiSettings


def add_ui(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    group = parser.add_argument_group("live page")
    group.add_argument(
        "--ui",
        action=argparse.BooleanOptionalAction,
        help="offer the live page /ui wherever the router listens, or nowhere (default: where it"
        " listens on loopback)",
    )
    group.add_argument(
        "--ui-host",
        action="append",
        dest="ui_hosts",
        metavar="NAME",
        help="a name by which browsers may ask for the page, beside addresses and localhost",
    )


def ui_of(arguments: argparse.Namespace, host: str) -> UiSettings | None:
    """How the page is offered by a router that listens there; None where it is not.

    Raises InputError for names that are none, or of a page that is not offered.
    """
    from pointsman.router.listening import is_loopback
    from pointsman.router.ui.access import UiSettings

    names = arguments.ui_hosts or []
    for name in names:
        if not name.isascii() or not name.replace("-", "").replace(".", "").isalnum():
            raise wrong_value("serve", "--ui-host", name, "the name of a host, without a port")
    is_offered = is_loopback(host) if arguments.ui is None else arguments.ui
    if names and not is_offered:
        raise InputError(f"--ui-host {names[0]}: the page is not offered; expected --ui with it")
    return UiSettings(frozenset(map(str.lower, [*names, host]))) if is_offered else None
