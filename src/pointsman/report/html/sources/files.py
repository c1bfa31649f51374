"""From paths to results: files of documents, and folders of evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pointsman.core.errors import InputError
from pointsman.evidence.decoding import read_object
from pointsman.evidence.folder import label_folder
from pointsman.report.html.result import Result
from pointsman.report.html.sources.documents import result_of
from pointsman.report.html.sources.evidence import evidence_result

_OF_A_FOLDER = ("pointsman.evidence/", "pointsman.measured-decision/")
_WANTED = (
    "JSON that compare, plan, policies bench, replay or calibrate wrote, or a folder of measured"
    " groups"
)


@dataclass(frozen=True, slots=True)
class _Place:
    """What a path means: a folder, or a file with its document."""

    path: Path
    document: Any = None


def results_at(paths: Sequence[Path]) -> list[Result]:
    """A result a path; a file of evidence or of a decision stands for its whole folder.

    Raises InputError for no path, for one given twice, and for what no page is made of.
    """
    if not paths:
        raise InputError("report: no result; expected at least one file or folder")
    labels = _labels(paths)
    places = [_place(path) for path in paths]
    for path, place in zip(paths, places, strict=True):
        if [each.path for each in places].count(place.path) > 1:
            raise InputError(f"report: {path} is given twice; expected each result once")
    return [_result(*each) for each in zip(paths, places, labels, strict=True)]


def _place(path: Path) -> _Place:
    if path.is_dir():
        return _Place(label_folder(path, None).resolve())
    document = read_object(path, _WANTED)
    if str(document.get("schema")).startswith(_OF_A_FOLDER):
        return _Place(path.parent.resolve())
    return _Place(path.resolve(), document)


def _result(path: Path, place: _Place, label: str) -> Result:
    """Errors of a file name its path as it was given."""
    if place.path.is_dir():
        return evidence_result(place.path, label)
    return replace(result_of(place.document, str(path)), label=label)


def _labels(paths: Sequence[Path]) -> list[str]:
    """The names, or where two are alike the paths as given."""
    names = [path.stem if path.suffix else path.name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]
