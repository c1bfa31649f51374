"""From the files of one label to its decisions."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pointsman.core.errors import InputError, unknown_name
from pointsman.core.files import read_file
from pointsman.evidence.best import best_of
from pointsman.evidence.checking import MECHANISM, check_file, is_ours, kind_of
from pointsman.evidence.comparable import check_vary, compare_facts
from pointsman.evidence.decision_file import (
    DECISION_SCHEMA,
    Best,
    DecisionDocument,
    GroupDecision,
    MechanismDecision,
    our_version,
)
from pointsman.evidence.decoding import read_envelope, read_object
from pointsman.evidence.envelope import Failure, ServingGroup
from pointsman.evidence.group import (
    REPLICA,
    Group,
    failure_of,
    group_of_envelope,
    group_of_lesson_file,
)
from pointsman.evidence.judging import Rule, judge
from pointsman.evidence.mechanism_verdict import NEXT, judge_mechanism
from pointsman.evidence.mechanism_view import strategies_of
from pointsman.verdict.decide import ACCEPT, NEXT_ACTIONS, REJECT, TUNE

SCOPE = {
    "simulation": "a simulation: it ranks candidates and measures nothing",
    "real_engine_cpu": "real engines on CPUs: the order of the groups, not what GPUs would take",
    "real_engine_gpu": "real engines on GPUs: this model, these devices, this workload",
    "mechanism_cpu": "two processes of one machine: the dealing of work, no GPU's time",
    "mechanism_gpu": "the dealing of work by itself: no engine, no cache, no network",
}


@dataclass(frozen=True, slots=True)
class Choice:
    """Which groups are compared: the baseline (None: the one replica), the candidates (empty: all
    others), and what is under test beside the one thing that always may be."""

    baseline: str | None = None
    candidates: tuple[str, ...] = ()
    vary: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A mechanism run's file."""

    path: Path
    document: dict[str, Any]
    sha256: str


def decide_files(files: Sequence[Path], label: str, choice: Choice, rule: Rule) -> DecisionDocument:
    """Every candidate against the baseline, and every mechanism run.

    Raises InputError where a file is not sound, nothing can be compared, or the baseline failed.
    """
    check_vary(choice.vary)
    groups, mechanisms, not_compared = _read(files)
    if len(groups) < 2 and not mechanisms:
        found = f"found {groups[0].file}" if groups else "found none"
        raise InputError(
            f"{label}: expected measured groups, a baseline and a candidate, or a mechanism run;"
            f" {found} (two estimates are compared as BASELINE CANDIDATE)"
        )
    if len(groups) == 1:
        not_compared.append(f"{groups[0].file}: is the only group")
    decided = _decide_groups(groups, label, choice, rule) if len(groups) > 1 else ()
    return DecisionDocument(
        schema=DECISION_SCHEMA,
        pointsman=our_version(),
        label=label,
        level=rule.level,
        max_imbalance_ratio=rule.limits.max_imbalance_ratio,
        max_comm_ratio=rule.limits.max_comm_ratio,
        groups=decided,
        mechanisms=tuple(_decide_mechanism(each, rule) for each in mechanisms),
        not_compared=tuple(not_compared),
        best=_best(groups, decided, rule),
    )


def _best(groups: list[Group], decided: Sequence[GroupDecision], rule: Rule) -> Best | None:
    accepted = {each.group for each in decided if each.decision == ACCEPT}
    times = {each.time for each in decided if each.decision == ACCEPT}
    time = "e2e_ms" if len(times) != 1 else str(*times)
    return best_of([group for group in groups if group.name in accepted], time, rule.level)


def _read(files: Sequence[Path]) -> tuple[list[Group], list[Mechanism], list[str]]:
    groups: list[Group] = []
    mechanisms: list[Mechanism] = []
    others: list[str] = []
    for path in files:
        document = read_object(path)
        if is_ours(document) and not str(document["schema"]).startswith("pointsman.evidence/"):
            others.append(f"{path.name}: is {document['schema']}, no evidence")
            continue
        report = check_file(path)
        if report.problems:
            more = len(report.problems) - 1
            rest = f" (and {more} more: see `pointsman evidence check`)" if more else ""
            raise InputError(f"{path}: {report.problems[0].text}{rest}")
        content = read_file(path)
        if kind_of(document) == MECHANISM:
            digest = hashlib.sha256(content).hexdigest()
            mechanisms.append(Mechanism(path, document, digest))
        else:
            groups.append(_group(path, document, content))
    return groups, mechanisms, others


def _group(path: Path, document: dict[str, Any], content: bytes) -> Group:
    if not is_ours(document):
        return group_of_lesson_file(document, path, content)
    envelope = read_envelope(path)
    assert isinstance(envelope, ServingGroup)
    return group_of_envelope(envelope, path, content)


def _decide_groups(
    groups: Sequence[Group], label: str, choice: Choice, rule: Rule
) -> tuple[GroupDecision, ...]:
    names = [group.name for group in groups]
    if len(set(names)) < len(names):
        raise InputError(f"{label}: two files are of one group: {', '.join(sorted(names))}")
    for name in choice.candidates:
        if name not in names:
            raise unknown_name(label, "--candidate", name, names)
    baseline = _baseline(groups, label, choice.baseline)
    if baseline.failure is not None:
        raise InputError(
            f"{baseline.file}: the baseline failed at {_told(baseline.failure)}; expected one that"
            f" ran, to try again: {baseline.failure.retry}"
        )
    wanted = choice.candidates or tuple(name for name in names if name != baseline.name)
    return tuple(
        _decide_group(baseline, group, choice.vary, rule)
        for group in groups
        if group.name in wanted
    )


def _baseline(groups: Sequence[Group], label: str, name: str | None) -> Group:
    if name is not None:
        for group in groups:
            if group.name == name:
                return group
        raise unknown_name(label, "--baseline", name, [group.name for group in groups])
    singles = [g for g in groups if g.shape.is_single and g.shape.mode in (REPLICA, None)]
    if len(singles) != 1:
        names = ", ".join(group.name for group in groups)
        raise InputError(
            f"{label}: {len(singles)} groups have one replica, so none is the baseline by itself;"
            f" name it with --baseline, one of {names}"
        )
    return singles[0]


def _decide_group(
    baseline: Group, candidate: Group, vary: tuple[str, ...], rule: Rule
) -> GroupDecision:
    level = str(candidate.facts.evidence_level)
    if candidate.failure is not None:
        return GroupDecision(
            group=candidate.name,
            file=candidate.file,
            sha256=candidate.sha256,
            baseline=baseline.name,
            baseline_sha256=baseline.sha256,
            evidence_level=level,
            decision=REJECT,
            reason=f"failed at {_told(candidate.failure)}; nothing of it is compared",
            next_action=NEXT_ACTIONS[REJECT],
            next_steps=(candidate.failure.retry,),
            failure=candidate.failure,
        )
    comparable = compare_facts(baseline, candidate, vary)
    judgement = judge(baseline, candidate, comparable, rule)
    return GroupDecision(
        group=candidate.name,
        file=candidate.file,
        sha256=candidate.sha256,
        baseline=baseline.name,
        baseline_sha256=baseline.sha256,
        evidence_level=level,
        decision=judgement.decision,
        reason=judgement.reason,
        next_action=judgement.next_action,
        next_steps=judgement.next_steps,
        varies=comparable.varies,
        time=judgement.time,
        logic=judgement.logic,
        checks=judgement.checks,
        metrics=judgement.metrics,
        remarks=_remarks(baseline, candidate, level),
    )


def _remarks(baseline: Group, candidate: Group, level: str) -> tuple[str, ...]:
    remarks = [f"{group.name}: {text}" for group in (baseline, candidate) for text in group.remarks]
    ours, theirs = (g.figures["throughput_tokens_per_s"].value for g in (baseline, candidate))
    before, after = baseline.shape.replicas, candidate.shape.replicas
    # In an open load the rate is the arrivals' own, however many replicas there are.
    has_pace = baseline.facts.load != "open"
    if has_pace and ours and theirs and isinstance(before, int) and isinstance(after, int):
        remarks.append(
            f"{theirs / ours:.3g} times the throughput on {after / before:.3g} times the replicas"
        )
    return (*remarks, *_scope(level))


def _decide_mechanism(mechanism: Mechanism, rule: Rule) -> MechanismDecision:
    document, path = mechanism.document, mechanism.path
    level = str(document["evidence_level"])
    failure = failure_of(document["failure"])
    if failure is not None:
        return MechanismDecision(
            file=path.name,
            sha256=mechanism.sha256,
            evidence_level=level,
            decision=REJECT,
            reason=f"failed at {_told(failure)}; no strategy is compared",
            next_action=NEXT[TUNE][0],
            next_steps=(failure.retry,),
            failure=failure,
        )
    judged = judge_mechanism(strategies_of(document["metrics"]["rows"]), str(path), rule.level)
    return MechanismDecision(
        file=path.name,
        sha256=mechanism.sha256,
        evidence_level=level,
        decision=judged.decision,
        reason=judged.reason,
        next_action=judged.next_action,
        next_steps=judged.next_steps,
        low_ms=judged.low,
        high_ms=judged.high,
        checks=judged.checks,
        remarks=_scope(level),
    )


def _scope(level: str) -> tuple[str, ...]:
    return (SCOPE[level],) if level in SCOPE else ()


def _told(failure: Failure) -> str:
    return f"stage {failure.stage}: {failure.reason}"
