"""What an experiment measured, a line a group."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pointsman.evidence.decoding import read_object
from pointsman.report.table import number, text_table, wrapped

_COLUMNS = (
    ("TTFT ms", "ttft_ms"),
    ("TPOT ms", "tpot_ms"),
    ("E2E ms", "e2e_ms"),
    ("P95 ms", "p95_ms"),
    ("P99 ms", "p99_ms"),
    ("queue ms", "queue_wait_ms"),
    ("hand-off ms", "kv_handoff_ms"),
    ("tokens/s", "throughput_tokens_per_s"),
    ("MiB", "peak_memory_mb"),
    ("success", "success_rate"),
)
_NONE = "-"


def bench_table(files: Sequence[Path]) -> str:
    """The groups' figures, of all repeats together; then those that failed, and what to know.

    ``files`` are evidence of groups, ours or of a group's own command.
    """
    documents = [(path, read_object(path)) for path in files]
    headings = ("group", "shape", "policy", *(heading for heading, _ in _COLUMNS))
    table = text_table(headings, [_row(*each) for each in documents], left_columns=3)
    return table + _notes(documents)


def _row(path: Path, document: dict[str, Any]) -> list[str]:
    layout, metrics = document.get("layout") or {}, document.get("metrics") or {}
    figures = [metrics.get(name) for _, name in _COLUMNS]
    return [
        str(document.get("group") or path.stem),
        _shape(layout),
        str(layout.get("policy") or _NONE),
        *(_NONE if value is None else number(value) for value in figures),
    ]


def _shape(layout: dict[str, Any]) -> str:
    """``2 x TP2``, ``1P1D``."""
    if not layout:
        return _NONE
    prefills, decodes = layout.get("prefills"), layout.get("decodes")
    count = f"{prefills}P{decodes}D" if prefills else f"{layout.get('replicas')}"
    degrees = [f"{name.upper()}{layout[name]}" for name in ("tp", "pp") if layout.get(name, 1) > 1]
    return " x ".join([count, *degrees])


def _notes(documents: Sequence[tuple[Path, dict[str, Any]]]) -> str:
    """What failed; what each repeat's reader must know, alike ones together."""
    failed: list[str] = []
    known: dict[str, dict[str, str]] = {}
    for path, document in documents:
        name = str(document.get("group") or path.stem)
        if document.get("failure"):
            failed.append(f"{name} failed at {_told(document['failure'])}")
        for repeat in document.get("repeats") or ():
            for text in _remarks(repeat):
                known.setdefault(text.partition(":")[0], {})[f"{name} {repeat['number']}"] = text
    return "".join(map(wrapped, [*failed, *map(_together, known.values())]))


def _remarks(repeat: dict[str, Any]) -> list[str]:
    """Each once; what makes it no result first."""
    invalid = repeat.get("invalid")
    first = [f"no result: {invalid}"] if invalid else []
    return first + [text for text in repeat.get("warnings") or () if text not in (invalid or "")]


def _together(texts: dict[str, str]) -> str:
    """``texts``: by repeat."""
    (name, text), *others = texts.items()
    head, colon, rest = text.partition(":")
    if not others:
        return f"{name}: {text}"
    return f"{len(texts)} repeats: {head}{colon} in {name}{rest and ','}{rest}"


def _told(failure: Any) -> str:
    return failure if isinstance(failure, str) else f"{failure['stage']}: {failure['reason']}"
