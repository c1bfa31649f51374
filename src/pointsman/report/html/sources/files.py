"""From paths to results: files of documents, and folders of evidence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pointsman.core.errors import InputError
from pointsman.evidence.decoding import read_object
from pointsman.evidence.folder import label_folder
from pointsman.report.html.result import Result
from pointsman.report.html.sources.documents import result_of
from pointsman.report.html.sources.evidence import evidence_result

_OF_A_FOLDER = ("pointsman.evidence/", "pointsman.measured-decision/")
_WANTED = "the JSON of a result, as `pointsman report --help` lists them, or a folder of groups"


def results_at(paths: Sequence[Path]) -> list[Result]:
    """A result a path; a file of evidence or of a decision stands for its whole folder.

    Raises InputError for no path, for one given twice, and for what no page is made of.
    """
    if not paths:
        raise InputError("report: no result; expected at least one file or folder")
    labels = _labels(paths)
    places = [_place(path) for path in paths]
    for path, place in zip(paths, places, strict=True):
        if places.count(place) > 1:
            raise InputError(f"report: {path} is given twice; expected each result once")
    return [_result(place, label) for place, label in zip(places, labels, strict=True)]


def _place(path: Path) -> Path:
    """The file, or the folder that the path means."""
    if path.is_dir():
        return label_folder(path, None).resolve()
    schema = str(read_object(path, _WANTED).get("schema"))
    is_one_of_several = schema.startswith(_OF_A_FOLDER)
    return (path.parent if is_one_of_several else path).resolve()


def _result(place: Path, label: str) -> Result:
    if place.is_dir():
        return evidence_result(place, label)
    return result_of(read_object(place, _WANTED), label)


def _labels(paths: Sequence[Path]) -> list[str]:
    """The names, or where two are alike the paths as given."""
    names = [path.stem if path.suffix else path.name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]
