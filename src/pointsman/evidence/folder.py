"""Where results lie: ``RESULTS/LABEL/GROUP.json``. Nothing that is there is ever overwritten.

A label isolates one run of an experiment; all labels stay. Rows of requests lie in
``RESULTS/LABEL/rows``.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec

from pointsman.core.errors import InputError, unknown_name, wrong_value
from pointsman.core.files import read_file, unreadable, unwritable
from pointsman.evidence.envelope import Envelope, ServingGroup, SideFile

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_NAME_WANTED = "letters, digits, dot, dash and underscore, beginning with a letter or digit"
_MOST_RUNS = 10_000
DECISION_STEM = "decision"
_DECISION = re.compile(rf"(?P<of>.*\.)?{DECISION_STEM}(?:-(?P<number>\d+))?\.json")


def new_label_folder(results: Path, label: str | None) -> Path:
    """The empty folder of a new run; without a label the next of ``run-1``, ``run-2``, ...

    Raises InputError for a label that has results already, or is no name.
    """
    if label is not None:
        check_name("label", label)
        if not _made(results / label):
            raise InputError(
                f"{results / label}: has results of an earlier run, which are never overwritten;"
                " choose another --label"
            )
        return results / label
    for number in range(1, _MOST_RUNS):
        if _made(results / f"run-{number}"):
            return results / f"run-{number}"
    raise InputError(f"{results}: has {_MOST_RUNS:,} runs; choose another --output")


def label_folder(results: Path, label: str | None) -> Path:
    """The folder of an earlier run: ``results`` itself if files lie in it, else the one of that
    label, which may be left out where there is only one.

    Raises InputError where it is not there, or where there are several and none is chosen.
    """
    try:
        entries = sorted(results.iterdir())
    except OSError as error:
        raise unreadable(results, error) from None
    labels = [entry.name for entry in entries if entry.is_dir() and any(entry.glob("*.json"))]
    if label is None and any(entry.suffix == ".json" for entry in entries):
        return results
    if not labels:
        raise InputError(f"{results}: no results; expected *.json in it, or in a folder a label")
    if label is None:
        if len(labels) > 1:
            raise InputError(
                f"{results}: has {len(labels)} runs, {', '.join(labels)}; choose one with --label"
            )
        return results / labels[0]
    if label not in labels:
        raise unknown_name(str(results), "label", label, labels)
    return results / label


def evidence_files(folder: Path) -> list[Path]:
    """All JSON files of a label but its decisions, by name."""
    files = sorted(folder.glob("*.json"))
    return [file for file in files if not _DECISION.fullmatch(file.name)]


def decisions_of(folder: Path) -> list[Path]:
    """The latest decision on all of a label's files, then the latest one on each file by itself."""
    latest: dict[str, tuple[int, Path]] = {}
    for path in folder.glob("*.json"):
        if found := _DECISION.fullmatch(path.name):
            numbered = int(found["number"] or 1), path
            of = found["of"] or ""
            latest[of] = max(latest.get(of, numbered), numbered)
    return [latest[of][1] for of in sorted(latest)]


def write_envelope(folder: Path, envelope: Envelope) -> Path:
    """Write ``GROUP.json`` (of a mechanism run ``mechanism.json``). Raises InputError if there."""
    name = envelope.group if isinstance(envelope, ServingGroup) else "mechanism"
    check_name("group", name)
    path = folder / f"{name}.json"
    write_new(path, pretty(envelope))
    return path


def write_rows(folder: Path, name: str, rows: Iterable[object]) -> SideFile:
    """Write ``rows/NAME.jsonl``, a line a row; what the envelope says of that file."""
    check_name("rows", name)
    encoder = msgspec.json.Encoder()
    lines = [encoder.encode(row) for row in rows]
    text = b"".join(line + b"\n" for line in lines)
    path = folder / "rows" / f"{name}.jsonl"
    _made(path.parent)
    if not (path.exists() and read_file(path) == text):  # else it was broken off behind this
        write_new(path, text)
    digest = hashlib.sha256(text).hexdigest()
    return SideFile(file=f"rows/{path.name}", sha256=digest, rows=len(lines))


def pretty(document: msgspec.Struct) -> bytes:
    """JSON for people, with a final newline."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n"


def check_name(kind: str, name: str) -> None:
    """Refuse what would not be one file or folder in the results."""
    if not _NAME.fullmatch(name):
        raise wrong_value("results", kind, name, _NAME_WANTED)


def write_new(path: Path, content: bytes) -> None:
    """A file that is there whole or not at all, and only where there was none.

    Raises InputError where there is one, MachineError where the folder cannot be written.
    """
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise unwritable(path, error) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.chmod(temporary, 0o644)
        os.link(temporary, path)  # unlike a renaming it fails where the name is taken
    except OSError as error:
        if error.errno == errno.EEXIST:
            raise InputError(
                f"{path}: is there already, and results are never overwritten; choose another"
                " --label"
            ) from None
        raise unwritable(path, error) from error
    finally:
        os.unlink(temporary)


def _made(folder: Path) -> bool:
    """Whether the folder is new; those above it are made too."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
    except FileExistsError:
        return False
    except OSError as error:
        raise unwritable(folder, error) from error
    return True
