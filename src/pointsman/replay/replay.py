"""Calls a policy again on every situation of a decision log, and compares."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pointsman.core.errors import InputError
from pointsman.dispatch.log_file import Log
from pointsman.dispatch.policy_file import policy_sha256
from pointsman.dispatch.record import Ask, LogHead
from pointsman.dispatch.view import decide
from pointsman.policies.catalogue import policy_named
from pointsman.policies.policy import Policy
from pointsman.replay.situations import situations


@dataclass(frozen=True, slots=True)
class Difference:
    """A choice that came out otherwise; replicas by their URLs."""

    sequence: int
    request_id: str
    time_ms: float
    recorded_replica: str
    recorded_reason: str
    replayed_replica: str
    replayed_reason: str


@dataclass(frozen=True, slots=True)
class Replay:
    """What a policy chooses in the situations of a log.

    ``choices``: all, those after which a request was held too.
    ``policy_changed``: the log's own policy was called, and its file is no longer the one that
    the router loaded.
    """

    recorded_policy: str
    replayed_policy: str
    choices: int
    differences: list[Difference]
    unfinished: int  # choices without an outcome
    truncated_lines: int
    policy_changed: bool = False
    earlier_outcomes: int = 0  # of requests that were sent before the first file given
    missing_choices: int = 0  # between the files given

    @property
    def agreeing(self) -> int:
        """How many choices came out the same."""
        return self.choices - len(self.differences)


def recorded_policy(head: LogHead) -> Policy:
    """The policy of a log, with its parameters. Raises InputError where it cannot be found."""
    return policy_named(head.policy).bind(**head.parameters)


def replay_same(log: Log) -> Replay:
    """Call the log's own policy: replica and reason of every choice are expected to agree."""
    result = _replay(log, recorded_policy(log.head), with_reasons=True)
    recorded = log.head.policy_sha256
    changed = recorded is not None and recorded != policy_sha256(log.head.policy)
    return replace(result, policy_changed=changed)


def replay_other(log: Log, policy: Policy) -> Replay:
    """Call another policy, one choice at a time, each in the situation as it was recorded.

    Only replicas are compared: reasons are each policy's own. What would have followed from
    another choice (another queue, another cache) is for the simulator to say.
    Raises InputError where the policy reads what the log does not hold.
    """
    missing = sorted(policy.reads - set(log.head.signals))
    if missing:
        raise InputError(
            f"{log.path}: policy {policy.name} reads {', '.join(missing)}; expected a log that"
            f" records it, this one records {', '.join(log.head.signals) or 'nothing'}"
        )
    return _replay(log, policy, with_reasons=False)


def _replay(log: Log, policy: Policy, *, with_reasons: bool) -> Replay:
    differences = []
    for choice, view, known in situations(log):
        situation = choice.situation(view)
        decision = decide(policy, situation, known)
        replica = situation.candidates[decision.candidate]
        reason = policy.reasons[decision.reason]
        if replica != choice.replica or (with_reasons and reason != choice.reason):
            differences.append(_difference(log, choice, replica, reason))
    return Replay(
        recorded_policy=_label(log.head),
        replayed_policy=policy.label,
        choices=len(log.asks),
        differences=differences,
        unfinished=log.unfinished,
        truncated_lines=log.truncated_lines,
        earlier_outcomes=log.earlier_outcomes,
        missing_choices=log.missing_choices,
    )


def _label(head: LogHead) -> str:
    """The recorded policy as ``Policy.label`` writes it, even where its file is gone."""
    name = head.policy.rpartition(":")[2]
    values = ", ".join(f"{key}={value:g}" for key, value in head.parameters.items())
    return f"{name}({values})" if values else name


def _difference(log: Log, choice: Ask, replica: int, reason: str) -> Difference:
    return Difference(
        sequence=choice.sequence,
        request_id=choice.request_id,
        time_ms=choice.time_ms,
        recorded_replica=log.candidate(choice.replica),
        recorded_reason=choice.reason,
        replayed_replica=log.candidate(replica),
        replayed_reason=reason,
    )
