"""The figures that a decision needs, from the JSON of an estimate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from pointsman.core.errors import InputError, MachineError, missing_field, wrong_value


@dataclass(frozen=True, slots=True)
class Figures:
    """One configuration as ``decide`` sees it; times in ms, None where the file does not say."""

    name: str
    summary: dict[str, Any]
    workload_sha256: str | None
    requests: int | None
    replicas: int | None
    costs: dict[str, Any]

    def required(self, key: str) -> float:
        """A figure of the summary. Raises InputError when it is missing or no number >= 0."""
        if key not in self.summary:
            raise missing_field(f"{self.name} summary", key, "a number >= 0")
        return self._number(key)

    def optional(self, key: str) -> float | None:
        """A figure of the summary, or None."""
        return self._number(key) if self.summary.get(key) is not None else None

    def _number(self, key: str) -> float:
        value = self.summary[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise wrong_value(f"{self.name} summary", key, value, "a number >= 0")
        return float(value)


def read_figures(path: Path) -> Figures:
    """The figures of ``pointsman estimate``'s JSON, or of a bare summary with the lesson's keys.

    Raises InputError when the file is no such JSON, MachineError when it cannot be read.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MachineError(f"cannot read {path}: {error.strerror}") from error
    try:
        document = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: not JSON: {error}") from error
    if not isinstance(document, dict):
        raise InputError(f"{path}: expected the JSON object that `pointsman estimate` writes")
    schema = document.get("schema", "")
    if "schema" in document and not str(schema).startswith("pointsman.estimate/"):
        raise wrong_value(str(path), "schema", schema, "pointsman.estimate/1")
    summary = document.get("summary", document)
    if not isinstance(summary, dict):
        raise wrong_value(str(path), "summary", summary, "an object")
    workload, fleet = document.get("workload", {}), document.get("fleet", {})
    return Figures(
        name=path.name,
        summary=summary,
        workload_sha256=workload.get("sha256"),
        requests=workload.get("requests"),
        replicas=fleet.get("replicas"),
        costs=fleet.get("costs", {}),
    )


def same_workload(baseline: Figures, candidate: Figures) -> None:
    """Refuse to compare two estimates of different requests, where the files say which."""
    for name in ("workload_sha256", "requests"):
        ours, theirs = getattr(baseline, name), getattr(candidate, name)
        if ours is not None and theirs is not None and ours != theirs:
            raise InputError(
                f"{candidate.name}: {name} is {theirs}, {baseline.name} has {ours};"
                " expected two estimates of one workload"
            )
