"""What is wrong with files of results, as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from pointsman.evidence.checking import FileReport
from pointsman.report.document import head, text_of
from pointsman.report.table import cell, csv_text, text_table, wrapped

CHECK_SCHEMA = "pointsman.evidence-check/1"
_HEADINGS = ("file", "kind", "schema", "evidence level", "failure", "problems")


def check_text(reports: Sequence[FileReport], form: str) -> str:
    """The reports as ``table``, ``json`` or ``csv`` (a line a problem)."""
    if form == "json":
        files = [{**asdict(report), "is_sound": report.is_sound} for report in reports]
        return text_of({**head(CHECK_SCHEMA), "files": files})
    if form == "csv":
        rows = [
            (report.file, problem.field, problem.place, problem.text)
            for report in reports
            for problem in report.problems
        ]
        return csv_text(("file", "field", "place", "problem"), rows)
    table = text_table(_HEADINGS, [_row(report) for report in reports], left_columns=5)
    return table + "".join(map(_remarks, reports))


def _row(report: FileReport) -> tuple[str, ...]:
    said = (report.kind, report.schema, report.evidence_level, report.failure)
    cells = [cell("", value) for value in said]
    return (report.file, *cells, str(len(report.problems)))


def _remarks(report: FileReport) -> str:
    lines = [f"{report.file}: {problem.text}\n" for problem in report.problems]
    return "".join(lines + [wrapped(f"{report.file}: note: {text}") for text in report.remarks])
