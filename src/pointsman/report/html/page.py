"""The frame of a page: the answer first, then the pictures, then what is not shown.

One file that asks nobody for anything: style and script stand in it, and its policy forbids every
request.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

from pointsman.report.document import text_of
from pointsman.report.html.charts.figure import figure, legend, scrolling
from pointsman.report.html.markup import Markup, escaped, joined, tag
from pointsman.report.html.pictures import Pictures, pictures_of
from pointsman.report.html.result import AnswerTable, Cell, Column, Result, runs_of
from pointsman.report.html.sources.documents import result_of
from pointsman.report.html.sources.evidence import evidence_result
from pointsman.report.html.sources.predictions import predictions_between
from pointsman.report.html.views.view import View
from pointsman.report.table import number, percent

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline';"
    " base-uri 'none'; form-action 'none'"
)
_MOST_WARNINGS = 4  # that are shown at once
_MOST_NAMED = 4  # results in the title
_KEYS = "Point at a chart for its values, or focus it and use the arrow keys."


def page_of(results: Sequence[Result]) -> str:
    """The whole page of one result, or of several that are compared."""
    told = tuple(each for result in results for each in result.predictions)
    predictions = (*told, *predictions_between(results))
    pictures = pictures_of(runs_of(results), predictions)
    title = _title(results)
    is_one = len(results) == 1
    body = joined(
        (
            tag("h1", None, title),
            tag("section", {"id": "answer"}, *(_answer(each, is_one) for each in results)),
            *_pictures(pictures),
            _footer(),
        )
    )
    return _document(title, body)


def _title(results: Sequence[Result]) -> str:
    if len(results) == 1:
        (one,) = results
        return f"{one.kind[0].upper()}{one.kind[1:]}: {one.label}"
    named = [result.label for result in results[:_MOST_NAMED]]
    more = len(results) - len(named)
    return " and ".join([*named, *([f"{more} more"] if more else [])])


def page_of_document(document: dict[str, Any], label: str) -> str:
    """The page of one document: of what its JSON says, to the last digit."""
    return page_of([result_of(json.loads(text_of(document)), label)])


def page_of_label(folder: Path, label: str) -> str:
    """The page of one run of an experiment: its measured groups, rows and decision.

    Raises InputError as ``evidence_result`` does.
    """
    return page_of([evidence_result(folder, label)])


def _document(title: str, body: Markup) -> str:
    head = joined(
        (
            Markup('<meta charset="utf-8">'),
            Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Markup(f'<meta http-equiv="Content-Security-Policy" content="{escaped(_POLICY)}">'),
            Markup('<meta name="color-scheme" content="light dark">'),
            tag("title", None, f"{title} - Pointsman"),
            tag("style", None, _asset("page.css")),
        )
    )
    main = tag("main", None, body)
    tip = Markup('<div id="tip" role="status" aria-live="polite" hidden></div>')
    whole = tag("body", None, main, tip, tag("script", None, _asset("page.js")))
    return f'<!doctype html>\n<html lang="en"><head>{head}</head>{whole}</html>\n'


def _asset(name: str) -> Markup:
    return Markup((files("pointsman.report.html") / "assets" / name).read_text(encoding="utf-8"))


def _answer(result: Result, is_one: bool) -> Markup:
    basis = [joined((tag("dt", None, term), tag("dd", None, text))) for term, text in result.basis]
    return tag(
        "article",
        None,
        *(() if is_one else (tag("p", {"class": "kind"}, f"{result.kind}: {result.label}"),)),
        tag("p", {"class": "verdict"}, result.verdict),
        *map(_table, result.tables),
        _warnings(result.warnings),
        tag("h2", None, "What it rests on"),
        tag("dl", {"class": "basis"}, *basis),
    )


def _warnings(texts: Sequence[str]) -> Markup:
    """A paragraph each; where they are many, behind their number."""
    shown = joined(tag("p", {"class": "warning"}, f"Warning: {text}.") for text in texts)
    if len(texts) <= _MOST_WARNINGS:
        return shown
    count = tag("summary", {"class": "warning"}, f"{len(texts)} warnings")
    return tag("details", {"class": "warnings"}, count, shown)


def _table(table: AnswerTable) -> Markup:
    head = tag("tr", None, *(_heading(table, k) for k in range(len(table.columns))))
    rows = [
        tag("tr", None, *(_cell(*each) for each in zip(row, table.columns, strict=True)))
        for row in table.rows
    ]
    whole = tag(
        "table",
        None,
        tag("caption", None, table.title),
        tag("thead", None, head),
        tag("tbody", None, *rows),
    )
    notes = [tag("p", {"class": "remark"}, text) for text in table.notes]
    shown = joined((*notes, scrolling(whole, table.title)))
    if not table.is_folded:
        return shown
    return tag("details", None, tag("summary", None, table.title), shown)


def _heading(table: AnswerTable, column: int) -> Markup:
    """To the left over text, else to the right."""
    is_text = any(isinstance(row[column], str) for row in table.rows)
    attributes = {"scope": "col", **({"class": "text"} if is_text else {})}
    return tag("th", attributes, table.columns[column].heading)


def _cell(value: Cell, column: Column) -> Markup:
    """What a table shows, and beside it every digit."""
    if value is None:
        return tag("td", None, "-")
    if isinstance(value, str):
        return tag("td", {"class": "text"}, value)
    shown = percent(value) if column.percent else number(value)
    return tag("td", None, tag("data", {"value": json.dumps(value)}, shown))


def _pictures(pictures: Pictures) -> Iterator[Markup]:
    if pictures.views:
        links = [
            tag("li", None, tag("a", {"href": f"#view-{k}"}, view.question))
            for k, view in enumerate(pictures.views)
        ]
        yield tag("nav", {"aria-label": "Pictures"}, tag("ol", None, *links))
        yield tag("p", {"class": "keys"}, _KEYS)
    for k, view in enumerate(pictures.views):
        yield _view(view, f"view-{k}")
    if pictures.absent:
        items = [tag("li", None, text) for text in pictures.absent]
        yield tag("section", None, tag("h2", None, "Not shown"), tag("ul", None, *items))


def _view(view: View, name: str) -> Markup:
    remarks = [tag("p", {"class": "remark"}, text) for text in view.remarks]
    return tag(
        "section",
        {"class": "view", "id": name},
        tag("h2", None, view.question),
        *remarks,
        legend(view.legend) if view.legend else Markup(""),
        tag("div", {"class": "charts"}, *map(figure, view.charts)),
    )


def _footer() -> Markup:
    return tag("footer", None, f"Written by pointsman {version('pointsman')}.")
