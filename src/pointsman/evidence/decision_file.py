"""What was decided from a label's files, written beside them and never overwritten."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Literal

import msgspec

from pointsman.core.errors import InputError
from pointsman.core.files import read_file
from pointsman.evidence.envelope import Failure
from pointsman.evidence.figures import Compared
from pointsman.evidence.folder import DECISION_STEM, pretty, write_new
from pointsman.verdict.decide import Check, Verdict

DECISION_SCHEMA: Literal["pointsman.measured-decision/1"] = "pointsman.measured-decision/1"
_MOST_DECISIONS = 10_000


class GroupDecision(msgspec.Struct, frozen=True, kw_only=True):
    """One candidate. Nothing of a failed one is compared."""

    group: str
    file: str
    sha256: str
    baseline: str
    baseline_sha256: str
    evidence_level: str
    decision: str
    reason: str
    next_action: str
    next_steps: tuple[str, ...]
    varies: tuple[str, ...] = ()
    time: str | None = None  # the metric that the lesson's rule took for the time
    logic: Verdict | None = None
    checks: tuple[Check, ...] = ()
    metrics: tuple[Compared, ...] = ()
    remarks: tuple[str, ...] = ()
    failure: Failure | None = None


class MechanismDecision(msgspec.Struct, frozen=True, kw_only=True):
    """One mechanism run: least loaded against round robin."""

    file: str
    sha256: str
    evidence_level: str
    decision: str
    reason: str
    next_action: str
    next_steps: tuple[str, ...]
    low_ms: float | None = None
    high_ms: float | None = None
    checks: tuple[Check, ...] = ()
    remarks: tuple[str, ...] = ()
    failure: Failure | None = None


class Best(msgspec.Struct, frozen=True, kw_only=True):
    """Of several accepted groups the one of the least time, and the one that comes next."""

    group: str
    next: str
    is_told_apart: bool
    reason: str


class DecisionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """All decisions of one label."""

    schema: Literal["pointsman.measured-decision/1"]
    pointsman: str
    label: str
    level: float
    max_imbalance_ratio: float
    max_comm_ratio: float
    groups: tuple[GroupDecision, ...]
    mechanisms: tuple[MechanismDecision, ...]
    not_compared: tuple[str, ...]  # files, each with the reason
    best: Best | None = None  # None: fewer than two were accepted

    @property
    def decisions(self) -> tuple[str, ...]:
        """Every decision in it."""
        of_groups = tuple(each.decision for each in self.groups)
        return of_groups + tuple(each.decision for each in self.mechanisms)


def our_version() -> str:
    """The version that decides."""
    return version("pointsman")


def write_decision(folder: Path, document: DecisionDocument, stem: str = DECISION_STEM) -> Path:
    """Write ``decision.json``, or ``decision-2.json`` where another decision lies there already.

    The same decision again is left as it lies. Raises MachineError where the folder cannot be
    written.
    """
    content = pretty(document)
    for number in range(1, _MOST_DECISIONS):
        path = folder / f"{stem}{f'-{number}' if number > 1 else ''}.json"
        if not path.exists():
            write_new(path, content)
            return path
        if read_file(path) == content:
            return path
    raise InputError(f"{folder}: has {_MOST_DECISIONS:,} decisions; choose another --label")
