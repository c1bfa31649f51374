"""The figures that a decision needs, from the JSON of an estimate."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from pointsman.core.errors import InputError, missing_field, wrong_value
from pointsman.core.files import read_file

_SCHEMAS = "pointsman.estimate/"
_OBJECT_WANTED = "the JSON object that `pointsman estimate` writes"

Amount = Annotated[float, msgspec.Meta(ge=0)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class Summary(msgspec.Struct, frozen=True):
    """The burst of an estimate; None where the file does not say. Other keys are left alone."""

    single_replica_time_ms: Amount | None = None
    makespan_ms: Amount | None = None
    imbalance_ratio: Amount | None = None
    comm_cost_ms: Amount | None = None
    throughput_req_per_ms: Amount | None = None
    handoff_total_ms: Amount | None = None
    routing_strategy: str | None = None
    serving_mode: str | None = None


class Shape(msgspec.Struct, frozen=True):
    """The shape of one instance, among the cost constants."""

    tp_degree: int | float | None = None
    pp_stages: int | float | None = None


class _Workload(msgspec.Struct, frozen=True):
    sha256: str | None = None
    requests: Count | None = None


class _Fleet(msgspec.Struct, frozen=True):
    replicas: Count | None = None
    costs: Shape = Shape()


class _EstimateFile(msgspec.Struct, frozen=True):
    summary: Summary
    schema: str | None = None
    workload: _Workload = _Workload()
    fleet: _Fleet = _Fleet()


_WANTED = {
    "schema": "pointsman.estimate/1",
    "sha256": "a string",
    "requests": "an integer >= 0",
    "replicas": "an integer >= 0",
    "routing_strategy": "a string",
    "serving_mode": "a string",
    "summary": "an object",
    "workload": "an object",
    "fleet": "an object",
    "costs": "an object",
}
_NUMBER_WANTED = "a number >= 0"


@dataclass(frozen=True, slots=True)
class Figures:
    """One configuration as ``decide`` sees it; times in ms, None where the file does not say."""

    name: str
    summary: Summary
    workload_sha256: str | None
    requests: int | None
    replicas: int | None
    shape: Shape

    def required(self, key: str) -> float:
        """A figure of the summary. Raises InputError when it is missing."""
        value: float | None = getattr(self.summary, key)
        if value is None:
            raise missing_field(f"{self.name} summary", key, _NUMBER_WANTED)
        return value


def read_figures(path: Path) -> Figures:
    """The figures of ``pointsman estimate``'s JSON, or of a bare summary with the lesson's keys.

    Raises InputError when the file is no such JSON, MachineError when it cannot be read.
    """
    try:
        document = msgspec.json.decode(read_file(path))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not JSON: {error}; expected {_OBJECT_WANTED}") from None
    if not isinstance(document, dict):
        raise InputError(f"{path}: no JSON object; expected {_OBJECT_WANTED}")
    if "summary" not in document and "schema" not in document:
        document = {"summary": document}
    file = _converted(document, path)
    return Figures(
        name=path.name,
        summary=file.summary,
        workload_sha256=file.workload.sha256,
        requests=file.workload.requests,
        replicas=file.fleet.replicas,
        shape=file.fleet.costs,
    )


def _converted(document: dict[str, Any], path: Path) -> _EstimateFile:
    schema = document.get("schema")
    if isinstance(schema, str) and not schema.startswith(_SCHEMAS):
        raise wrong_value(str(path), "schema", schema, _WANTED["schema"])
    try:
        return msgspec.convert(document, _EstimateFile)
    except msgspec.ValidationError as error:
        raise _refusal(str(error), document, path) from None


def _refusal(reason: str, document: dict[str, Any], path: Path) -> InputError:
    """The library's refusal in our words: its reason ends in the place, ``at `$.fleet.costs```."""
    place = re.search(r"at `\$\.([\w.]+)`", reason)
    if place is None:  # nothing else is required at the top
        return missing_field(str(path), "summary", "an object")
    value: Any = document
    for key in place[1].split("."):
        value = value[key]
    return wrong_value(str(path), place[1], value, _WANTED.get(key, _NUMBER_WANTED))


def same_workload(baseline: Figures, candidate: Figures) -> None:
    """Refuse to compare two estimates of different requests, where the files say which."""
    for name in ("workload_sha256", "requests"):
        ours, theirs = getattr(baseline, name), getattr(candidate, name)
        if ours is not None and theirs is not None and ours != theirs:
            raise InputError(
                f"{candidate.name}: {name} is {theirs}, {baseline.name} has {ours};"
                " expected two estimates of one workload"
            )
