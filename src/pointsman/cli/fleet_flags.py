"""The flags that describe a fleet that batches (docs/fleets.md)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pointsman.fleet.description import FleetDescription
    from pointsman.fleet.tables import Known, Overrides
    from pointsman.metrics.goodput import Objectives

FLEET_HELP = (
    "replicas that batch: COUNTxDEVICE[:tp=N][:pp=N][:prefill|:decode] joined by +, such as"
    " 4xh100; COUNT alone with --costs; or FILE.toml"
)
ENGINE_VERSION_HELP = (
    "of the engine that will serve, such as 0.19.0; warned of where --costs are of another one"
)
HOLD_ORDERS = ("fcfs", "shortest_prefill", "earliest_deadline")
DEALT = ("random", "session")

# Flag, type, metavar, help; each is None unless given.
_OF_ENGINES = (
    ("--max-num-seqs", int, "N", "requests that a replica runs at once (vLLM's flag)"),
    ("--max-num-batched-tokens", int, "N", "tokens of an iteration (vLLM's flag)"),
    ("--kv-blocks", int, "N", "KV blocks of a replica (default: what its memory holds)"),
    (
        "--kv-block-size",
        int,
        "TOKENS",
        "of the KV cache (default: the trace's if larger than 16, else 16)",
    ),
    ("--scheduling-policy", str, "NAME", "fcfs or priority: who waits first (vLLM's flag)"),
)
_OF_SURROUNDINGS = (
    ("--metrics-age-ms", float, "MS", "between two readings of an engine's gauges (default: 0)"),
    ("--event-delay-ms", float, "MS", "until the router hears of a cache event (default: 0)"),
    ("--routers", int, "N", "that do not see what the others sent but in gauges (default: 1)"),
    ("--hold-ms", float, "MS", "hold requests in the router beyond so much waiting prefill"),
    ("--concurrency", int, "N", "closed loop: so many requests in flight, no arrival times"),
    ("--think-ms", float, "MS", "from an answer's end to the next request of the closed loop"),
)


def add_fleet_flags(parser: argparse.ArgumentParser) -> None:
    """All but ``--fleet`` and ``--costs``."""
    group = parser.add_argument_group("fleet that batches (--fleet)")
    group.add_argument("--model", metavar="NAME", help="of all replicas, such as llama-3.1-8b")
    group.add_argument("--models", type=Path, metavar="FILE", help="further models, .toml")
    group.add_argument("--devices", type=Path, metavar="FILE", help="further devices, .toml")
    group.add_argument("--engine-version", metavar="V", help=ENGINE_VERSION_HELP)
    for flag, kind, metavar, text in (*_OF_ENGINES, *_OF_SURROUNDINGS):
        group.add_argument(flag, type=kind, metavar=metavar, help=text)
    group.add_argument(
        "--hold-order",
        choices=HOLD_ORDERS,
        help="which held request goes first (default: fcfs)",
    )
    group.add_argument(
        "--dealt",
        choices=DEALT,
        help="with --routers: each request to any of them, or a session to one (default: random)",
    )
    group.add_argument(
        "--goodput",
        nargs="+",
        action="extend",
        metavar="NAME:MS",
        help="objectives that a request must all meet, as vLLM's: ttft:3000 tpot:60 e2el:20000",
    )
    group.add_argument(
        "--baseline",
        metavar="POLICY",
        help="the policy that the others are held against (default: the best)",
    )
    group.add_argument(
        "--over-time",
        action="store_const",
        const=True,
        help="with each policy samples of every replica: running, waiting, KV use (not in csv)",
    )


FLEET_ONLY = (
    *("model", "models", "devices", "engine_version", "hold_order", "dealt", "goodput"),
    *("baseline", "over_time"),
    *(flag[2:].replace("-", "_") for flag, *_ in (*_OF_ENGINES, *_OF_SURROUNDINGS)),
)


def check_no_fleet_flags(arguments: argparse.Namespace) -> None:
    """Refuse flags that need ``--fleet`` where it is not given."""
    from pointsman.core.errors import InputError

    for name in FLEET_ONLY:
        if getattr(arguments, name) is not None:
            raise InputError(
                f"--{name.replace('_', '-')} goes with --fleet; with --replicas a replica serves"
                " one request at a time"
            )


def objectives_of_flags(arguments: argparse.Namespace) -> Objectives | None:
    """What ``--goodput`` asks; None where it is not given."""
    from pointsman.metrics.goodput import objectives_of

    return None if arguments.goodput is None else objectives_of(arguments.goodput)


def described_fleet(
    arguments: argparse.Namespace, objectives: Objectives | None
) -> FleetDescription:
    """The fleet of ``--fleet``, with what the other flags say in place of what a file says."""
    from pointsman.fleet.tables import described, fleet_tables
    from pointsman.fleet.words import groups_of_words, names_a_file

    text: str = arguments.fleet
    if names_a_file(text):
        path = Path(text)
        known = _known(arguments, path.parent)
        return described(fleet_tables(path), known, _overrides(arguments, objectives), text)
    known = _known(arguments, Path())
    tables = {"replicas": groups_of_words(text)}
    return described(tables, known, _overrides(arguments, objectives), f"--fleet {text}")


def _known(arguments: argparse.Namespace, folder: Path) -> Known:
    from pointsman.costs.devices import known_devices, read_devices
    from pointsman.costs.models import known_models, read_models
    from pointsman.fleet.tables import Known

    models, devices = arguments.models, arguments.devices
    return Known(
        models=known_models() if models is None else read_models(models),
        devices=known_devices() if devices is None else read_devices(devices),
        folder=folder,
    )


def _overrides(arguments: argparse.Namespace, objectives: Objectives | None) -> Overrides:
    from pointsman.fleet.tables import Overrides
    from pointsman.fleet.words import names_a_file

    costs = arguments.costs
    if costs is not None and names_a_file(arguments.fleet):
        costs = costs.absolute()  # of where the command runs, not of the file's folder
    return Overrides(
        groups=_given(
            {
                "costs": None if costs is None else str(costs),
                "max_num_seqs": arguments.max_num_seqs,
                "max_num_batched_tokens": arguments.max_num_batched_tokens,
                "kv_blocks": arguments.kv_blocks,
                "scheduling_policy": arguments.scheduling_policy,
            }
        ),
        tables={
            "signals": _given(
                {
                    "metrics_age_ms": arguments.metrics_age_ms,
                    "event_delay_ms": arguments.event_delay_ms,
                }
            ),
            "holding": _given({"wait_ms": arguments.hold_ms, "order": arguments.hold_order}),
            "closed_loop": _given(
                {"concurrency": arguments.concurrency, "think_ms": arguments.think_ms}
            ),
            "routers": _given({"count": arguments.routers, "dealt": arguments.dealt}),
        },
        model=arguments.model,
        engine_version=arguments.engine_version,
        block_size=arguments.kv_block_size,
        ttft_ms=None if objectives is None else objectives.ttft_ms,
    )


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
