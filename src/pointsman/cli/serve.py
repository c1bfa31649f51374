"""``pointsman serve``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.cli import options
from pointsman.cli.config_file import ConfigFile
from pointsman.cli.edge_flags import (
    add_edge,
    add_sessions,
    keys_of,
    limits_of,
    sessions_of,
    tls_of,
)
from pointsman.cli.kv_sources import kv_settings_of
from pointsman.cli.log_flags import add_log, rotation_of
from pointsman.cli.pair_flags import FLAGS, add_pairs, handoff_of, replicas_by_role
from pointsman.cli.resilience_flags import add_resilience, resilience_of
from pointsman.cli.serve_config import ServeConfig
from pointsman.cli.ui_flags import add_ui, ui_of
from pointsman.core.checks import check_integer
from pointsman.core.errors import InputError, wrong_value

if TYPE_CHECKING:
    from pointsman.dispatch.facts import ReplicaFacts
    from pointsman.policies.policy import Policy
    from pointsman.router.discovery import Names
    from pointsman.router.engine.scraper import ScrapeSettings
    from pointsman.router.replica_options import ReplicaOptions
    from pointsman.router.router_settings import AdminSettings, RouterSettings

NAME = "serve"
HELP = "route OpenAI-compatible requests over replicas, and log why each went where it went"

DEFAULT_POLICY = "fewest_misses"
DEFAULT_HOST = "127.0.0.1"
MAX_PORT = 65535
MOST_INDEX_MB = 32 << 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    add_routing(parser)
    add_edge(parser)
    add_resilience(parser)
    add_admin(parser)
    add_ui(parser)


def add_routing(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of what is chosen among, and how."""
    _add_replicas(parser)
    add_pairs(parser)
    _add_choices(parser)
    _add_knowledge(parser)
    add_sessions(parser)


def _add_replicas(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config",
        action=ConfigFile,
        tables={"replicas": _read_replicas},
        instead=("replica", *FLAGS),
        metavar="FILE",
        help="a TOML file of these flags, which win over it, and of [[replicas]]; replicas come"
        " and go when it changes",
    )
    parser.add_argument(
        "--replica",
        action="append",
        metavar="URL",
        dest="replica_urls",
        help="http://HOST:PORT of an OpenAI-compatible server; once for each replica",
    )
    parser.set_defaults(replicas=[], config_file=None)
    parser.add_argument(
        "--discover",
        action="append",
        metavar="URL",
        help="http://NAME:PORT; each address that DNS has for the name is a replica, which comes"
        " and goes with it",
    )
    parser.add_argument(
        "--discover-interval-s",
        type=float,
        default=5.0,
        metavar="S",
        help="how often names are looked up (default: %(default)s)",
    )
    parser.add_argument(
        "--listen",
        default="127.0.0.1:8080",
        metavar="HOST:PORT",
        help="where to listen; port 0 takes a free one (default: %(default)s)",
    )


def _add_choices(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--policy",
        default=DEFAULT_POLICY,
        metavar="NAME[:p=v]",
        help="a policy of ours, or FILE.py:NAME of yours (default: %(default)s)",
    )
    options.add_slack(parser)
    parser.add_argument(
        "--goodput",
        nargs="+",
        metavar="NAME:MS",
        help="objectives that the policy is told, as in ttft:3000 tpot:60",
    )
    parser.add_argument(
        "--costs",
        type=Path,
        metavar="FILE",
        help="cost constants that price a request's work, .json or .toml (see estimate)",
    )
    add_log(parser)
    parser.add_argument(
        "--seed",
        type=int,
        default=0,
        metavar="N",
        help="for policies that draw at random (default: %(default)s)",
    )


def _add_knowledge(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--prefix-index-mb",
        type=int,
        default=32,
        metavar="MB",
        help="memory for which replica was sent which prefix (default: %(default)s)",
    )
    parser.add_argument(
        "--models-interval-s",
        type=float,
        default=30.0,
        metavar="S",
        help="how often replicas are asked for their models; 0: never, each is taken to serve all"
        " (default: %(default)s)",
    )
    parser.add_argument(
        "--scrape-interval-s",
        type=float,
        default=5.0,
        metavar="S",
        help="how often engines are asked for their metrics, 1 at least; 0: never"
        " (default: %(default)s)",
    )


def add_admin(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of the admin API."""
    parser.add_argument(
        "--admin",
        metavar="HOST:PORT",
        help="where to listen for the admin API, which adds, drains and removes replicas",
    )
    parser.add_argument(
        "--admin-key-file",
        type=Path,
        metavar="FILE",
        help="keys, one a line, of which the admin API wants one",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until told to stop; the exit code."""
    from pointsman.router.listening import is_loopback
    from pointsman.router.process import run

    settings = _settings(arguments)
    if not is_loopback(settings.host) and settings.api_keys is None:
        _complain(
            f"{settings.host} can be reached from other machines, and requests need no key"
            " (see --api-keys)"
        )

    def announce(url: str) -> None:
        policy = settings.rules.policy.label
        replicas = len(settings.replicas)
        print(f"listening on {url}; policy {policy}; replicas: {replicas}", flush=True)

    run(settings, announce, _complain)
    return 0


def _complain(message: str) -> None:
    print(f"pointsman: {message}", file=sys.stderr, flush=True)


def settings_of(arguments: argparse.Namespace) -> RouterSettings:
    """What all the flags say. Raises InputError for what no router can be started with."""
    return _settings(arguments)


def _settings(arguments: argparse.Namespace) -> RouterSettings:
    from pointsman.dispatch.dispatcher import Rules
    from pointsman.dispatch.facts import ReplicaFacts, read_facts
    from pointsman.dispatch.policy_file import policy_sha256
    from pointsman.router.router_settings import RouterSettings

    if arguments.seed < 0:
        raise wrong_value("serve", "--seed", arguments.seed, "an integer >= 0")
    check_integer("serve", "--prefix-index-mb", arguments.prefix_index_mb, 1, most=MOST_INDEX_MB)
    host, port = host_and_port("--listen", arguments.listen)
    policy = _policy_of(arguments)
    facts = ReplicaFacts() if arguments.costs is None else read_facts(arguments.costs)

    def replicas_of(given: argparse.Namespace) -> list[ReplicaOptions]:
        return [_with_facts(replica, facts) for replica in _replicas(given)]

    names, file = _names_of(arguments), arguments.config_file
    replicas = _with_found(replicas_of(arguments), names)
    return RouterSettings(
        replicas=[replica.address for replica in replicas],
        rules=Rules(policy, arguments.seed),
        facts=facts,
        options=replicas,
        config=None if file is None else ServeConfig(file, arguments, replicas_of),
        policy_name=_without_parameters(arguments.policy),
        host=host,
        port=port,
        log_path=arguments.decision_log,
        log_rotation=rotation_of(arguments),
        policy_sha256=policy_sha256(arguments.policy),
        limits=limits_of(arguments),
        api_keys=keys_of(arguments),
        tls=tls_of(arguments),
        sessions=sessions_of(arguments),
        models_interval_s=arguments.models_interval_s,
        prefix_index_bytes=arguments.prefix_index_mb << 20,
        resilience=resilience_of(arguments, _ttft_ms_of(arguments)),
        scrape=_scrape_of(arguments),
        kv_events=kv_settings_of(replicas, arguments.config),
        names=names,
        admin=_admin_of(arguments),
        ui=ui_of(arguments, host),
        handoff=handoff_of(arguments, replicas),
    )


def _policy_of(arguments: argparse.Namespace) -> Policy:
    from pointsman.fleet.objectives import with_objectives
    from pointsman.metrics.goodput import objectives_of

    policy = options.policy_of(arguments.policy, arguments.slack_ms)
    if arguments.goodput is None:
        return policy
    (told,) = with_objectives([arguments.policy], [policy], objectives_of(arguments.goodput))
    if told == policy and _ttft_ms_of(arguments) is None:
        raise InputError(f"--goodput: policy {policy.name} goes by no such objective")
    return told


def _ttft_ms_of(arguments: argparse.Namespace) -> float | None:
    """The objective that held requests are ordered by, if they are."""
    from pointsman.metrics.goodput import objectives_of

    if arguments.goodput is None or arguments.hold_order != "earliest_deadline":
        return None
    return objectives_of(arguments.goodput).ttft_ms


def _scrape_of(arguments: argparse.Namespace) -> ScrapeSettings | None:
    from pointsman.router.engine.scraper import ScrapeSettings

    interval_s = arguments.scrape_interval_s
    return None if interval_s == 0 else ScrapeSettings(interval_s)


def _admin_of(arguments: argparse.Namespace) -> AdminSettings | None:
    from pointsman.router.api_keys import ApiKeys
    from pointsman.router.router_settings import AdminSettings

    file = arguments.admin_key_file
    if arguments.admin is None:
        if file is not None:
            raise InputError(f"--admin-key-file {file}: is for --admin, which is not given")
        return None
    host, port = host_and_port("--admin", arguments.admin)
    return AdminSettings(host, port, None if file is None else ApiKeys(file))


def _read_replicas(tables: object, where: str, folder: Path) -> list[ReplicaOptions]:
    from pointsman.cli.replica_tables import read_replicas

    return read_replicas(tables, where, folder)


def _replicas(arguments: argparse.Namespace) -> list[ReplicaOptions]:
    from pointsman.router.replica_options import ReplicaOptions
    from pointsman.router.upstream import replica_address

    urls = arguments.replica_urls
    replicas = replicas_by_role(arguments)
    if replicas is None and urls is not None:
        replicas = [ReplicaOptions(replica_address(url)) for url in urls]
    replicas = arguments.replicas if replicas is None else replicas
    if not (replicas or arguments.discover):
        raise InputError(
            f"{arguments.command}: no replica; expected --replica URL, --prefill URL with --decode"
            " URL, [[replicas]] in --config, or --discover URL"
        )
    addresses = [replica.address for replica in replicas]
    for place, address in enumerate(addresses):
        if address in addresses[:place]:
            raise InputError(f"--replica {address.url}: is given twice")
    return replicas


def _names_of(arguments: argparse.Namespace) -> Names | None:
    """The names, looked up once."""
    from pointsman.router.discovery import found_at
    from pointsman.router.upstream import replica_address

    if arguments.discover is None:
        return None
    names = [replica_address(url, "--discover") for url in arguments.discover]
    return found_at(names, arguments.discover_interval_s)


def _with_found(replicas: list[ReplicaOptions], names: Names | None) -> list[ReplicaOptions]:
    """And those that the names stand for. Raises InputError for one that is named otherwise too."""
    found = () if names is None else names.found
    known = {replica.address for replica in replicas}
    for each in found:
        if each.address in known:
            raise InputError(f"--discover: finds {each.address.url}, which is named already")
    return [*replicas, *found]


def _with_facts(replica: ReplicaOptions, shared: ReplicaFacts) -> ReplicaOptions:
    """With what its costs and seats come to, where it has its own."""
    from dataclasses import replace

    from msgspec import structs

    from pointsman.dispatch.facts import read_facts

    seats = replica.max_num_seqs
    if replica.costs is None and seats is None:
        return replica
    facts = shared if replica.costs is None else read_facts(replica.costs)
    facts = facts if seats is None else structs.replace(facts, max_num_seqs=seats)
    return replace(replica, facts=facts)


def host_and_port(flag: str, text: str) -> tuple[str, int]:
    """Raises InputError for what is no HOST:PORT."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) <= MAX_PORT):
        raise InputError(f"{flag} {text}: expected HOST:PORT with a port in 0..{MAX_PORT}")
    return host.strip("[]") or DEFAULT_HOST, int(port)


def _without_parameters(text: str) -> str:
    """The policy's name as it can be found again from any folder."""
    head, *rest = text.split(":")
    return f"{Path(head).resolve()}:{rest[0]}" if head.endswith(".py") else head
