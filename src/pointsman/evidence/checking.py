"""What a file of results lacks, whoever wrote it, and where that was looked for.

Files of the lessons' shape are taken from anywhere, older ones too, in which a failure or a
decision is a string, or rows are one a rank. Our own are held against their whole schema.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pointsman.core.errors import InputError, shown
from pointsman.core.files import read_file
from pointsman.evidence.decoding import TOP, Problem, decode, read_object
from pointsman.evidence.envelope import (
    SCHEMA,
    EvidenceLevel,
    MechanismRun,
    ServingGroup,
)
from pointsman.evidence.group import failure_of
from pointsman.evidence.mechanism_view import missing_of_row
from pointsman.evidence.metrics import METRIC_NAMES

SERVING, MECHANISM = "serving_group", "mechanism_run"

# Sources: the lessons on distributed inference (5.5) and on serving replica routing (5.4).
_SHARED = ("workload", "hardware", "metrics", "evidence_level", "failure", "decision")
REQUIRED: dict[str, tuple[str, ...]] = {SERVING: ("backend", *_SHARED), MECHANISM: _SHARED}
_FAMILY = "pointsman.evidence/"
_OURS: dict[str, tuple[str, ...]] = {
    SERVING: ServingGroup.__struct_fields__,
    MECHANISM: MechanismRun.__struct_fields__,
}


@dataclass(frozen=True, slots=True)
class FileReport:
    """What one file is, what is wrong with it, and what is odd but no fault."""

    file: str
    kind: str | None
    schema: str | None  # null: not one of ours
    evidence_level: str | None
    failure: str | None
    problems: tuple[Problem, ...]
    remarks: tuple[str, ...]

    @property
    def is_sound(self) -> bool:
        """Whether nothing is missing or wrong."""
        return not self.problems


def check_file(path: Path) -> FileReport:
    """Look through one file. Raises InputError where it is not there."""
    read_file(path)
    try:
        document = read_object(path)
    except InputError as error:
        text = str(error).removeprefix(f"{path}: ")
        return FileReport(
            str(path), None, None, None, None, (Problem("JSON", TOP, text),), remarks=()
        )
    kind = kind_of(document)
    failure = failure_of(document.get("failure"))
    return FileReport(
        file=str(path),
        kind=None if _is_another(document) else kind,
        schema=_text(document.get("schema")),
        evidence_level=_text(document.get("evidence_level")),
        failure=f"{failure.stage}: {failure.reason}" if failure else None,
        problems=tuple(_problems(document, kind, path)),
        remarks=tuple(_remarks(document)),
    )


def kind_of(document: dict[str, Any]) -> str:
    """By ``kind`` where the file says it, else by what only a mechanism run has."""
    kind = document.get("kind")
    if isinstance(kind, str) and kind in REQUIRED:
        return kind
    metrics = document.get("metrics")
    has_rows = isinstance(metrics, dict) and "rows" in metrics
    return MECHANISM if has_rows or "environment_profile" in document else SERVING


def is_ours(document: dict[str, Any]) -> bool:
    """Whether the file claims to be of a schema of ours."""
    return isinstance(document.get("schema"), str) and document["schema"].startswith("pointsman.")


def _is_another(document: dict[str, Any]) -> bool:
    return is_ours(document) and not document["schema"].startswith(_FAMILY)


def _problems(document: dict[str, Any], kind: str, path: Path) -> list[Problem]:
    if is_ours(document) and document["schema"] != SCHEMA:
        text = f"schema is {shown(document['schema'])}; expected {SCHEMA}"
        return [Problem("schema", TOP, text)]
    ours = is_ours(document)
    problems = [
        _missing(name, TOP, "the lesson" if name in REQUIRED[kind] else "this schema")
        for name in (("kind", *_OURS[kind]) if ours else REQUIRED[kind])
        if name not in document
    ]
    problems += _metric_problems(document, kind)
    if problems or not ours:
        return problems + ([] if ours else _value_problems(document, kind))
    decoded = decode(document)
    if isinstance(decoded, Problem):
        return [decoded]
    return _side_file_problems(decoded, path) if isinstance(decoded, ServingGroup) else []


def _missing(field: str, place: str, by: str) -> Problem:
    text = f"{field} is missing; looked for at {place}; {by} requires it"
    return Problem(field, place, text)


def _metric_problems(document: dict[str, Any], kind: str) -> list[Problem]:
    if "metrics" not in document:
        return []
    metrics = document["metrics"]
    if not isinstance(metrics, dict):
        return [Problem("metrics", TOP, f"metrics is {shown(metrics)}; expected an object")]
    if kind == MECHANISM:
        return _row_problems(metrics, failed=failure_of(document.get("failure")) is not None)
    return [_missing(name, "metrics", "the lesson") for name in METRIC_NAMES if name not in metrics]


def _row_problems(metrics: dict[str, Any], failed: bool) -> list[Problem]:
    rows = metrics.get("rows")
    if not isinstance(rows, list) or (not rows and not failed):
        found = "missing" if "rows" not in metrics else shown(rows)
        text = f"rows is {found}; looked for in metrics; expected one object a strategy or rank"
        return [Problem("rows", "metrics", text)]
    return [
        Problem(field, f"metrics.rows[{k}]", _row_text(row, field, k, wanted))
        for k, row in enumerate(rows)
        for field, wanted in missing_of_row(row)
    ]


def _row_text(row: Any, field: str, k: int, wanted: str) -> str:
    if isinstance(row, dict) and field not in row:
        return f"{field} is missing; looked for in metrics.rows[{k}]; expected {wanted}"
    found = shown(row.get(field)) if isinstance(row, dict) else shown(row)
    return f"metrics.rows[{k}].{field} is {found}; expected {wanted}"


def _value_problems(document: dict[str, Any], kind: str) -> list[Problem]:
    problems = []
    for name in ("backend", "workload", "hardware"):
        value = document.get(name, "there")
        if (kind == SERVING or name != "backend") and (
            not isinstance(value, str | dict) or not value
        ):
            problems.append(_wrong(name, TOP, value, "a string or an object that says which"))
    level = document.get("evidence_level", "there")
    if not isinstance(level, str) or not level:
        problems.append(_wrong("evidence_level", TOP, level, "a string that says what it is"))
    for name in ("failure", "decision"):
        if not isinstance(document.get(name), str | dict | None):
            wanted = "null, a string or an object"
            problems.append(_wrong(name, TOP, document[name], wanted))
    metrics = document.get("metrics")
    if kind == SERVING and isinstance(metrics, dict):
        problems += _figure_problems(metrics)
    return problems


def _figure_problems(metrics: dict[str, Any]) -> list[Problem]:
    problems = []
    for name in METRIC_NAMES:
        value = metrics.get(name)
        if value is None:
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        most = 1.0 if name == "success_rate" else float("inf")
        if not is_number or not 0.0 <= value <= most:
            wanted = "a number in 0..1" if name == "success_rate" else "a number >= 0, or null"
            problems.append(_wrong(name, "metrics", value, wanted))
    p95, p99 = metrics.get("p95_ms"), metrics.get("p99_ms")
    if not problems and p95 is not None and p99 is not None and p99 < p95:
        problems.append(_wrong("p99_ms", "metrics", p99, f"at least p95_ms, which is {p95}"))
    return problems


def _wrong(field: str, place: str, value: Any, wanted: str) -> Problem:
    where = field if place == TOP else f"{place}.{field}"
    return Problem(field, place, f"{where} is {shown(value)}; expected {wanted}")


def _side_file_problems(envelope: ServingGroup, path: Path) -> list[Problem]:
    problems = []
    for k, repeat in enumerate(envelope.repeats):
        place = f"repeats[{k}].rows"
        if repeat.rows is None:
            continue
        file = path.parent / repeat.rows.file
        if not file.is_file():
            text = f"{repeat.rows.file} is not there; looked for beside {path.name}"
            problems.append(Problem("rows", place, text))
        elif hashlib.sha256(read_file(file)).hexdigest() != repeat.rows.sha256:
            text = f"{repeat.rows.file} has another SHA-256 than {path.name} says: it was changed"
            problems.append(Problem("rows", place, text))
    return problems


def _remarks(document: dict[str, Any]) -> list[str]:
    remarks = []
    level = document.get("evidence_level")
    if isinstance(level, str) and level not in get_args(EvidenceLevel):
        known = ", ".join(get_args(EvidenceLevel))
        remarks.append(f"evidence_level is {shown(level)}, none of ours: {known}")
    if isinstance(document.get("failure"), str) and document["failure"]:
        remarks.append("failure is a string: an older form, without stage and how to retry")
    if isinstance(document.get("decision"), str):
        remarks.append("decision is a string: an older form; decide does not read it")
    if not is_ours(document) and "details" not in document and kind_of(document) == SERVING:
        remarks.append("nothing says what p95_ms is of, nor how often it was measured")
    return remarks


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
