"""``pointsman doctor``: what is installed here, and what more there could be."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pointsman.cli.installation import Extra, Installation
    from pointsman.cli.machine import Machine

NAME = "doctor"
HELP = "say what is installed here, what each extra would add, and what is broken"

SCHEMA = "pointsman.doctor/1"
EXIT_BROKEN = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "--format", choices=("table", "json"), default="table", help="default: %(default)s"
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help=f"exit with {EXIT_BROKEN} where something essential is broken",
    )


def run(arguments: argparse.Namespace) -> int:
    """Look and say; 0, or 1 under ``--strict`` where something essential is broken."""
    from pointsman.cli.installation import look_at_installation
    from pointsman.cli.machine import look_at_machine

    installation, machine = look_at_installation(), look_at_machine()
    broken = what_is_broken(installation, machine)
    if arguments.format == "json":
        document = document_of(installation, machine)
        sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    else:
        sys.stdout.write(page(installation, machine))
    return EXIT_BROKEN if arguments.strict and broken else 0


def what_is_broken(installation: Installation, machine: Machine) -> tuple[str, ...]:
    """What Pointsman cannot do without, in a sentence each with what to do."""
    broken = []
    if not machine.python.is_new_enough:
        broken.append(f"Python is {machine.python.version}; expected 3.11 or later")
    missing = [each.shown for each in installation.requirements if not each.is_met]
    if missing:
        broken.append(f"packages: {', '.join(missing)}; install Pointsman again with pip")
    if machine.cache.trouble is not None:
        broken.append(
            f"compile cache: {machine.cache.trouble}; every run compiles anew, some 40 s for a"
            " fleet: set NUMBA_CACHE_DIR to a folder that can be written"
        )
    return tuple(broken)


def document_of(installation: Installation, machine: Machine) -> dict[str, Any]:
    """The same as a document."""
    broken = what_is_broken(installation, machine)
    return {
        "schema": SCHEMA,
        "pointsman": installation.version,
        **asdict(machine),
        "packages": [asdict(each) | {"is_met": each.is_met} for each in installation.requirements],
        "extras": [
            asdict(each) | {"is_installed": each.is_installed} for each in installation.extras
        ],
        "broken": list(broken),
    }


def page(installation: Installation, machine: Machine) -> str:
    """All of it for a person."""
    from pointsman.report.table import text_columns, wrapped

    broken = what_is_broken(installation, machine)
    extras = [row for extra in installation.extras for row in _extra_rows(extra)]
    parts = [
        text_columns(_facts(installation, machine), left_columns=2),
        "Extras:\n" + text_columns(extras, left_columns=3),
        "Programs on PATH (none is needed to simulate or to plan):\n"
        + text_columns([(f"  {p.name}", p.path or "-", p.gives) for p in machine.programs], 3),
    ]
    said = "".join(wrapped(f"Broken: {each}.") for each in broken)
    parts.append(said or "Nothing essential is broken.\n")
    return "\n".join(parts)


def _facts(installation: Installation, machine: Machine) -> list[tuple[str, str]]:
    needed = installation.requirements
    met = [each.shown for each in needed if each.is_met]
    cache = machine.cache
    ports = ", ".join(f"{p.number} {'free' if p.is_free else 'taken'}" for p in machine.ports)
    kept = "cannot be written" if cache.trouble else f"{cache.functions} compiled functions"
    gpus = machine.gpus
    return [
        ("pointsman", installation.version),
        ("Python", f"{machine.python.version}, {machine.python.executable}"),
        ("system", machine.system),
        ("cores", f"{machine.usable_cores} usable of {machine.cores}"),
        ("packages", f"{len(met)} of {len(needed)} as needed"),
        ("compile cache", f"{cache.folder or '-'}: {kept}"),
        ("ports", ports),
        ("GPUs", gpus.trouble or "; ".join(gpus.found) or "nvidia-smi lists none"),
    ]


def _extra_rows(extra: Extra) -> list[tuple[str, str, str]]:
    """What it gives; under that the versions that are there, or how it is installed."""
    has = ", ".join(each.shown for each in extra.requirements if each.is_met)
    if extra.is_installed:
        return [(f"  {extra.name}", "installed", extra.gives), ("", "", has)]
    lacks = ", ".join(each.shown for each in extra.requirements if not each.is_met)
    state = f"partly: {has}; {lacks}: " if has else ""
    return [(f"  {extra.name}", "-", extra.gives), ("", "", state + extra.command)]
