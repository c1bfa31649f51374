"""Measured groups of one label, with what was decided from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from pointsman.bench.foretelling import REPORT
from pointsman.bench.stages.rows import JoinedRow
from pointsman.core.errors import InputError
from pointsman.core.files import read_file
from pointsman.evidence.checking import MECHANISM, check_file, is_ours, kind_of
from pointsman.evidence.deciding import SCOPE
from pointsman.evidence.decision_file import DecisionDocument, GroupDecision, MechanismDecision
from pointsman.evidence.decoding import read_envelope, read_object
from pointsman.evidence.envelope import Envelope, Failure, MechanismRun, ServingGroup
from pointsman.evidence.folder import decisions_of, evidence_files
from pointsman.evidence.group import Group, group_of_lesson_file
from pointsman.report.html.result import AnswerTable, Cell, Column, Result
from pointsman.report.html.sources.decoding import stated
from pointsman.report.html.sources.groups import (
    mechanism_runs,
    run_of_group,
    run_of_other,
)
from pointsman.report.html.sources.prediction_report import prediction_result

_COLUMNS = (
    Column("group"),
    Column("decision"),
    Column("policy"),
    Column("replicas"),
    Column("TTFT ms"),
    Column("TPOT ms"),
    Column("E2E ms"),
    Column("E2E P95 ms"),
    Column("E2E P99 ms"),
    Column("tokens/s"),
    Column("queue wait ms"),
    Column("succeeded", percent=True),
)
_REASONS = (Column("group"), Column("decision"), Column("reason"), Column("next"))
_SHOWN = (
    *("ttft_ms", "tpot_ms", "e2e_ms", "p95_ms", "p99_ms", "throughput_tokens_per_s"),
    *("queue_wait_ms", "success_rate"),
)
_MECHANISM = (Column("strategy"), Column("slowest rank ms"), Column("requests/s, proxy"))


@dataclass(frozen=True, slots=True)
class _Label:
    """Everything of one run of an experiment."""

    groups: tuple[ServingGroup, ...]
    mechanisms: tuple[MechanismRun, ...]
    others: tuple[Group, ...]  # with the lesson's fields, written by somebody else
    decisions: dict[str, DecisionDocument]  # by the name of their file
    warnings: tuple[str, ...]


def evidence_result(folder: Path, label: str) -> Result:
    """A folder of ``pointsman.evidence/1`` files, their rows and their latest decisions.

    Raises InputError where it holds none of ours, or one that cannot be read.
    """
    envelopes, others, left_out = _read(folder)
    if not envelopes and not others:
        raise InputError(
            f"{folder}: no evidence; expected *.json that `pointsman bench` wrote, or any that"
            " `pointsman evidence check` finds sound"
        )
    found = [_rows(folder, each) for each in envelopes if isinstance(each, ServingGroup)]
    facts = _Label(
        groups=tuple(each for each in envelopes if isinstance(each, ServingGroup)),
        mechanisms=tuple(each for each in envelopes if isinstance(each, MechanismRun)),
        others=tuple(others),
        decisions={path.name: _read_decision(path) for path in decisions_of(folder)},
        warnings=(
            *left_out,
            *_warnings(envelopes),
            *(text for _, texts in found for text in texts),
        ),
    )
    rows = [rows for rows, _ in found]
    decided = {g.group: g for each in facts.decisions.values() for g in each.groups}
    predicted = _predicted(folder)
    predicted_tables = () if predicted is None else predicted.tables
    return Result(
        label=label,
        kind="measured groups",
        verdict="\n".join((_verdict(facts), *(() if predicted is None else (predicted.verdict,)))),
        tables=(
            *_tables(facts, decided),
            *_reasons(facts),
            *(replace(each, is_folded=True) for each in predicted_tables),
        ),
        basis=tuple(_basis(facts)),
        warnings=(*facts.warnings, *(() if predicted is None else predicted.warnings)),
        predictions=() if predicted is None else predicted.predictions,
        runs=(
            *(
                run_of_group(group, those, decided.get(group.group))
                for group, those in zip(facts.groups, rows, strict=True)
            ),
            *map(run_of_other, facts.others),
            *(run for each in facts.mechanisms for run in mechanism_runs(each)),
        ),
    )


def _warnings(envelopes: Sequence[Envelope]) -> Iterator[str]:
    """What is to be known of a group's repeats, alike ones once."""
    for group in envelopes:
        if isinstance(group, ServingGroup):
            told = [] if group.failure is None else [_failed(group.failure)]
            told += [text for repeat in group.repeats for text in repeat.warnings]
            told += [f"invalid: {r.invalid}" for r in group.repeats if r.invalid is not None]
            yield from (f"{group.group}: {text}" for text in dict.fromkeys(told))


def _failed(failure: Failure) -> str:
    return f"it failed ({failure.stage}): {failure.reason.rstrip('.')}; {failure.retry.rstrip('.')}"


def _predicted(folder: Path) -> Result | None:
    """What was predicted before the groups ran; None where nothing was."""
    path = folder / REPORT
    return prediction_result(read_object(path), str(path)) if path.is_file() else None


def _read(folder: Path) -> tuple[list[Envelope], list[Group], list[str]]:
    """Ours, other people's that are sound, and a word for each file that is neither."""
    envelopes: list[Envelope] = []
    others: list[Group] = []
    left_out: list[str] = []
    for path in evidence_files(folder):
        document = read_object(path)
        if not is_ours(document):
            report = check_file(path)
            if report.problems or kind_of(document) == MECHANISM:
                why = report.problems[0].text if report.problems else "is a mechanism run"
                left_out.append(f"{path.name} is left out: {why}")
            else:
                others.append(group_of_lesson_file(document, path, read_file(path)))
        elif str(document["schema"]).startswith("pointsman.evidence/"):
            envelopes.append(read_envelope(path))
        else:
            left_out.append(f"{path.name} is left out: it is {document['schema']}, no evidence")
    return envelopes, others, left_out


def _rows(folder: Path, group: ServingGroup) -> tuple[list[list[JoinedRow]], list[str]]:
    """The rows of every repeat that has a file, and a word for each file that is not there."""
    rows, lost = [], []
    for repeat in group.repeats:
        if repeat.rows is None:
            continue
        path = folder / repeat.rows.file
        if path.is_file():
            rows.append([row for row in _read_rows(path) if not row.is_warmup])
        else:
            lost.append(f"{repeat.rows.file} of {group.group} is not there: its rows are left out")
    return rows, lost


def _read_rows(path: Path) -> list[JoinedRow]:
    decode = msgspec.json.Decoder(JoinedRow).decode
    rows = []
    for number, line in enumerate(read_file(path).splitlines(), start=1):
        try:
            rows.append(decode(line))
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise InputError(f"{path} line {number}: {error}; expected a request's row") from None
    return rows


def _read_decision(path: Path) -> DecisionDocument:
    try:
        return msgspec.json.decode(read_file(path), type=DecisionDocument)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {error}; expected what `pointsman decide` wrote") from None


def _verdict(facts: _Label) -> str:
    """What was decided of whom, in a line each with what it rests on first; whole reasons are in a
    table."""
    if not facts.decisions:
        return "Nothing is decided yet: `pointsman decide` says accept, tune or reject."
    texts = []
    for file, document in facts.decisions.items():
        of = "" if len(facts.decisions) == 1 else f" ({file})"
        if (best := document.best) is not None:
            texts.append(f"Best of those accepted: {best.group}, before {best.next}{of}.")
        texts += [
            f"{name}: {each.decision}: {each.reason.partition('; ')[0]}.{of}"
            for name, each in _decided(document)
        ]
    return "\n".join(texts)


def _reasons(facts: _Label) -> Iterator[AnswerTable]:
    for file, document in facts.decisions.items():
        rows = [(name, d.decision, d.reason, _next(d)) for name, d in _decided(document)]
        if (best := document.best) is not None:
            rows.append((best.group, "best", best.reason, ""))
        of = "" if len(facts.decisions) == 1 else f" ({file})"
        if rows:
            title = f"Why each group is what it is, and what comes next{of}"
            yield AnswerTable(title, _REASONS, tuple(rows), is_folded=True)


def _decided(
    document: DecisionDocument,
) -> Iterator[tuple[str, GroupDecision | MechanismDecision]]:
    yield from ((each.group, each) for each in document.groups)
    yield from ((each.file, each) for each in document.mechanisms)


def _next(each: GroupDecision | MechanismDecision) -> str:
    return "; ".join((each.next_action, *each.next_steps))


def _tables(facts: _Label, decided: dict[str, GroupDecision]) -> Iterator[AnswerTable]:
    rows = [_row(group, decided.get(group.group)) for group in facts.groups]
    rows += [_other_row(group, decided.get(group.name)) for group in facts.others]
    if rows:
        yield AnswerTable("All groups", _COLUMNS, tuple(rows))
    for each in facts.mechanisms:
        strategies = tuple(
            (row.strategy, row.max_rank_makespan_ms, row.throughput_requests_per_s_proxy)
            for row in each.metrics.rows
        )
        yield AnswerTable(f"Mechanism, {each.evidence_level}", _MECHANISM, strategies)


def _row(group: ServingGroup, decision: GroupDecision | None) -> tuple[Cell, ...]:
    state = "failed" if group.failure is not None else "-"
    return (
        group.group,
        state if decision is None else decision.decision,
        group.layout.policy or "-",
        group.layout.replicas,
        *(getattr(group.metrics, name) for name in _SHOWN),
    )


def _other_row(group: Group, decision: GroupDecision | None) -> tuple[Cell, ...]:
    figures: dict[str, float | None] = {str(n): each.value for n, each in group.figures.items()}
    return (
        group.name,
        "-" if decision is None else decision.decision,
        str(group.shape.policy or "-"),
        group.shape.replicas,
        *(figures[name] for name in _SHOWN),
    )


def _basis(facts: _Label) -> Iterator[tuple[str, str]]:
    if facts.groups:
        yield from _group_basis(facts.groups)
    if facts.others:
        names = ", ".join(group.file for group in facts.others)
        yield "Quoted", f"as their writers state them: {names}"
    if facts.mechanisms:
        first = facts.mechanisms[0]
        yield "Mechanism", f"{first.evidence_level}, {first.workload.repeats} repeats"
    for file, document in facts.decisions.items():
        yield "Decision", f"{file}, at {stated(document.level)}, by pointsman {document.pointsman}"


def _group_basis(groups: Sequence[ServingGroup]) -> Iterator[tuple[str, str]]:
    repeats = sorted({len(group.repeats) for group in groups})
    seeds = sorted({repeat.seed for g in groups for repeat in g.repeats if repeat.seed is not None})
    yield "Requests", _told(groups, _requests)
    yield "Workload", _told(groups, lambda g: f"{g.workload.id} (SHA-256 {g.workload.sha256[:12]})")
    yield "Repeats", f"{' to '.join(dict.fromkeys(map(str, (repeats[0], repeats[-1]))))} a group"
    yield "Origin", _told(groups, lambda g: f"{_origin(g)}: {g.evidence_level}")
    yield "Scope", _told(groups, lambda g: SCOPE[g.evidence_level])
    yield "Engine", _told(groups, _engine)
    yield "Hardware", _told(groups, _hardware)
    yield "Seed", ", ".join(map(str, seeds)) or _told(groups, lambda g: str(g.workload.seed))
    yield "Interval", _told(groups, lambda g: g.definitions.intervals)


def _told(groups: Sequence[ServingGroup], of: Callable[[ServingGroup], str]) -> str:
    """What is so of all groups, or what is so of which of them."""
    named: dict[str, list[str]] = {}
    for group in groups:
        named.setdefault(of(group), []).append(group.group)
    if len(named) == 1:
        return next(iter(named))
    return "; ".join(f"{text} ({', '.join(names)})" for text, names in named.items())


def _requests(group: ServingGroup) -> str:
    return f"{group.workload.requests:,} a repeat, {group.workload.load} load"


def _engine(group: ServingGroup) -> str:
    backend = group.backend
    return f"{backend.engine} {backend.version or ''}, {backend.model.id}"


def _hardware(group: ServingGroup) -> str:
    has = group.hardware
    accelerator = f", {has.accelerators} x {has.accelerator}" if has.accelerator else ""
    return f"{has.cpu}, {has.cores} cores{accelerator}"


def _origin(group: ServingGroup) -> str:
    return "simulated" if group.evidence_level == "simulation" else "measured"
