"""What was decided from measured groups, as text."""

from __future__ import annotations

import msgspec

from pointsman.evidence.decision_file import DecisionDocument, GroupDecision, MechanismDecision
from pointsman.evidence.figures import Compared
from pointsman.report.table import csv_text, number, text_table, wrapped
from pointsman.verdict.decide import Check

_DIGITS = 4
_HEADINGS = ("metric", "unit", "baseline", "candidate", "low", "high", "verdict")


def measured_decision_text(document: DecisionDocument, form: str) -> str:
    """The decisions as ``table``, ``json`` or ``csv`` (a line a group and metric)."""
    if form == "json":
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    if form == "csv":
        rows = [
            (group.group, group.decision, *_values(each))
            for group in document.groups
            for each in group.metrics
        ]
        rows += [(m.file, m.decision, "", "", "", "", "", "", "") for m in document.mechanisms]
        return csv_text(("group", "decision", *_HEADINGS), rows)
    blocks = [_group(group, document.level) for group in document.groups]
    blocks += [_mechanism(each) for each in document.mechanisms]
    left_out = "".join(wrapped(f"not compared: {text}") for text in document.not_compared)
    return "\n".join(blocks) + _best(document) + left_out


def decisions_in_short(document: DecisionDocument) -> str:
    """A paragraph a decision, without its figures."""
    groups = [f"{each.group} against {each.baseline}\n{_ending(each)}" for each in document.groups]
    mechanisms = [f"{each.file}\n{_ending(each)}" for each in document.mechanisms]
    return "\n".join(groups + mechanisms) + _best(document)


def _group(group: GroupDecision, level: float) -> str:
    title = f"{group.group} against {group.baseline} ({group.evidence_level})"
    text = f"{title}: under test {' and '.join(group.varies)}\n" if group.varies else f"{title}\n"
    if group.metrics:
        rows = [[str(value) for value in _cells(each)] for each in group.metrics]
        text += text_table(_HEADINGS, rows, left_columns=2)
        text += f"low, high: of candidate less baseline, at {level:.0%}\n\n"
        text += _checks(group.checks) + "\n"
    return text + _ending(group)


def _mechanism(each: MechanismDecision) -> str:
    text = f"{each.file} ({each.evidence_level}): least loaded against round robin\n"
    if each.checks:
        text += _checks(each.checks) + "\n"
    return text + _ending(each)


def _best(document: DecisionDocument) -> str:
    best = document.best
    if best is None:
        return ""
    leads = f"the best of those accepted: {best.group}, before {best.next}"
    return "\n" + wrapped(f"{leads}: {best.reason}")


def _ending(each: GroupDecision | MechanismDecision) -> str:
    lines = wrapped(f"{each.decision}: {each.reason}") + f"next: {each.next_action}\n"
    lines += "".join(wrapped(f"  - {step}") for step in each.next_steps)
    return lines + "".join(wrapped(f"note: {text}") for text in each.remarks)


def _checks(checks: tuple[Check, ...]) -> str:
    rows = [
        (
            check.name,
            number(check.value, _DIGITS),
            number(check.limit, _DIGITS),
            "yes" if check.passed else "NO",
        )
        for check in checks
    ]
    return text_table(("check", "value", "limit", "holds"), rows)


def _cells(each: Compared) -> tuple[str, ...]:
    numbers = (each.baseline, each.candidate, each.low, each.high)
    shown = ("-" if value is None else number(value, _DIGITS) for value in numbers)
    return (each.name, each.unit, *shown, each.verdict)


def _values(each: Compared) -> tuple[object, ...]:
    return (
        each.name,
        each.unit,
        each.baseline,
        each.candidate,
        each.low,
        each.high,
        each.verdict,
    )
