"""The flags of ``serve`` that say what happens when replicas fail, are slow, or are full."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from dataclasses import replace

from pointsman.cli.fleet_flags import HOLD_ORDERS
from pointsman.core.errors import InputError
from pointsman.router.settings import Holding, Probing, Resilience, SettingAside, Timeouts

_DEFAULTS = Resilience()
_MIB = 1 << 20

HOLD_ORDER = "--hold-order"

# flag, type, metavar, default, help
_FLAGS = (
    (
        *("--connect-timeout-ms", float, "MS", _DEFAULTS.timeouts.connect_ms),
        "how long a connection to a replica may take to be made",
    ),
    (
        *("--first-byte-timeout-ms", float, "MS", _DEFAULTS.timeouts.first_byte_ms),
        "how long an answer may take to begin; one that is no stream begins when it is complete",
    ),
    (
        *("--idle-timeout-ms", float, "MS", _DEFAULTS.timeouts.idle_ms),
        "how long an answer that has begun may be silent",
    ),
    (
        *("--retries", int, "N", _DEFAULTS.retries),
        "on how many further replicas a request is tried whose answer has not begun",
    ),
    (
        *("--probe-interval-ms", float, "MS", _DEFAULTS.probing.interval_ms),
        "how often each replica is asked for its /health",
    ),
    (
        *("--slow-start-ms", float, "MS", _DEFAULTS.probing.slow_start_ms),
        "how long a replica that came back takes to get its whole share of requests",
    ),
    (
        *("--set-aside-after", int, "N", _DEFAULTS.setting_aside.answers),
        "errors that a replica answers in a row until it gets no requests for a while; 0: never",
    ),
    (
        *("--set-aside-ms", float, "MS", _DEFAULTS.setting_aside.first_ms),
        "how long that is, times how often in succession, 300000 at most",
    ),
    (
        *("--max-in-flight", int, "N", _DEFAULTS.max_in_flight),
        "requests in flight on one replica at most",
    ),
    (
        *("--hold-ms", float, "MS", _DEFAULTS.holding.wait_ms),
        "hold requests in the router beyond so much waiting prefill",
    ),
    (
        *("--hold-requests", int, "N", _DEFAULTS.holding.requests),
        "requests that wait at most: held, or while no replica is ready, or all are full",
    ),
    (
        *("--hold-mib", int, "N", _DEFAULTS.holding.bytes // _MIB),
        "MiB of bodies that wait at most",
    ),
    (
        *("--hold-timeout-ms", float, "MS", _DEFAULTS.holding.timeout_ms),
        "how long a request waits at most",
    ),
    (
        *("--drain-ms", float, "MS", _DEFAULTS.drain_ms),
        "how long requests in flight may take to end when the router is told to stop",
    ),
)


def add_resilience(parser: argparse.ArgumentParser, without: Collection[str] = ()) -> None:
    """Declare the flags; of those ``without``, by their flags, the defaults alone."""
    for flag, kind, metavar, default, text in _FLAGS:
        if flag in without:
            parser.set_defaults(**{flag.lstrip("-").replace("-", "_"): default})
            continue
        shown = "none" if default is None else "%(default)s"
        parser.add_argument(
            flag, type=kind, metavar=metavar, default=default, help=f"{text} (default: {shown})"
        )
    if HOLD_ORDER in without:
        parser.set_defaults(hold_order=None)
        return
    parser.add_argument(
        HOLD_ORDER,
        choices=HOLD_ORDERS,
        help="which request held by --hold-ms goes first (default: fcfs)",
    )


def resilience_of(arguments: argparse.Namespace, ttft_ms: float | None = None) -> Resilience:
    """What the flags say; ``ttft_ms``: the objective that deadlines of held requests are made of.

    Raises InputError for a value outside its range.
    """
    return Resilience(
        timeouts=Timeouts(
            arguments.connect_timeout_ms,
            arguments.first_byte_timeout_ms,
            arguments.idle_timeout_ms,
        ),
        probing=Probing(arguments.probe_interval_ms, arguments.slow_start_ms),
        holding=_holding_of(arguments, ttft_ms),
        setting_aside=SettingAside(arguments.set_aside_after, arguments.set_aside_ms),
        retries=arguments.retries,
        max_in_flight=arguments.max_in_flight,
        drain_ms=arguments.drain_ms,
    )


def _holding_of(arguments: argparse.Namespace, ttft_ms: float | None) -> Holding:
    order = arguments.hold_order
    if order is not None and arguments.hold_ms is None:
        raise InputError(f"--hold-order {order} goes with --hold-ms; expected both")
    holding = Holding(
        arguments.hold_requests,
        arguments.hold_mib * _MIB,
        arguments.hold_timeout_ms,
        arguments.hold_ms,
        order or _DEFAULTS.holding.order,
    )
    return holding if ttft_ms is None else replace(holding, ttft_ms=ttft_ms)
