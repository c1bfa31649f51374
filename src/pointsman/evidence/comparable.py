"""Whether two groups may be compared: everything is the same but the one thing under test.

Source: the lesson on distributed inference, steps 2 and 5.6. A change of load that passes for a
result of a strategy is what seldom anybody refuses; here it is never under test.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from pointsman.core.errors import InputError, shown, unknown_name
from pointsman.evidence.group import SPLIT, Facts, Group, Shape, Value
from pointsman.evidence.places import PLACES, looked_in

LOAD = ("workload_sha256", "requests", "load", "concurrency", "max_tokens")

# What may be under test, and the fields that it is.
ASPECTS: dict[str, tuple[str, ...]] = {
    "policy": ("policy",),
    "replicas": ("replicas", "prefills", "decodes"),
    "mode": ("mode",),
    "parallel": ("tp", "pp"),
    "handoff": ("handoff",),
    "engine": ("engine", "engine_version"),
    "model": ("model", "model_revision", "tokenizer", "tokenizer_revision"),
    "dtype": ("dtype",),
    "hardware": ("hardware",),
}


@dataclass(frozen=True, slots=True)
class Difference:
    """One field that the two groups have otherwise."""

    field: str
    baseline: Value
    candidate: Value

    def __str__(self) -> str:
        return f"{self.field}: {shown(self.baseline)} against {shown(self.candidate)}"


@dataclass(frozen=True, slots=True)
class Comparable:
    """``varies``: the aspects under test. ``unknown``: facts that neither file states, so that
    nobody can tell whether they are the same."""

    varies: tuple[str, ...]
    differences: tuple[Difference, ...]
    unknown: tuple[str, ...]


def check_vary(names: Sequence[str]) -> None:
    """Refuse what can never be under test."""
    for name in names:
        if name not in ASPECTS:
            raise unknown_name("decide", "--vary", name, ASPECTS)


def compare_facts(baseline: Group, candidate: Group, vary: Sequence[str] = ()) -> Comparable:
    """What differs is what is under test, or it is refused with InputError, every field by name.

    Under test is one aspect of the shape, or what ``vary`` names. A split instead of a single
    replica has more replicas by itself, and a single replica has no policy.
    """
    check_vary(vary)
    differences = _differences(baseline.facts, candidate.facts)
    shapes = _shape_differences(baseline.shape, candidate.shape)
    varies = [
        aspect
        for aspect, names in ASPECTS.items()
        if any(each.field in names for each in (*differences, *shapes))
    ]
    own = {name for aspect in (vary or varies) for name in ASPECTS[aspect]}
    refused = [each for each in differences if not vary or each.field not in own]
    refused += [each for each in shapes if each.field not in own]
    where = f"{candidate.file} against {baseline.file}"
    if refused:
        raise _refusal(where, refused)
    if not vary and len(varies) != 1:
        raise _not_one(where, varies, shapes)
    return Comparable(tuple(varies), (*shapes, *differences), _unknown(baseline, candidate))


def _differences(baseline: Facts, candidate: Facts) -> list[Difference]:
    return [
        Difference(field.name, ours, theirs)
        for field in fields(Facts)
        if (ours := getattr(baseline, field.name)) != (theirs := getattr(candidate, field.name))
    ]


def _shape_differences(baseline: Shape, candidate: Shape) -> list[Difference]:
    left_out: set[str] = set()
    if baseline.is_single:
        left_out.add("policy")
    if baseline.mode != candidate.mode:
        left_out |= {"prefills", "decodes", "handoff"}
        if baseline.is_single and candidate.mode == SPLIT:
            left_out.add("replicas")
    return [
        Difference(field.name, ours, theirs)
        for field in fields(Shape)
        if field.name not in left_out
        and (ours := getattr(baseline, field.name)) != (theirs := getattr(candidate, field.name))
    ]


def _refusal(where: str, refused: Sequence[Difference]) -> InputError:
    advice = "measure both with the same"
    names = {each.field for each in refused}
    if names & set(LOAD):
        advice = (
            "a change of load is load sensitivity, no result of a strategy: measure both under one"
            " load"
        )
    elif names <= {name for fields_of in ASPECTS.values() for name in fields_of}:
        advice += ", or name what is under test with --vary"
    return InputError(f"{where}: not comparable: {'; '.join(map(str, refused))}; {advice}")


def _not_one(where: str, varies: Sequence[str], shapes: Sequence[Difference]) -> InputError:
    if not varies:
        return InputError(
            f"{where}: not comparable: nothing differs, so nothing is under test; repeats of one"
            " group belong into one file"
        )
    told = "; ".join(map(str, shapes))
    names = " and ".join(varies)
    return InputError(
        f"{where}: not comparable: {names} differ ({told}), and no one can tell which of them made"
        f" the difference; measure a group between, or say --vary {' '.join(varies)}"
    )


def _unknown(baseline: Group, candidate: Group) -> tuple[str, ...]:
    unknown = []
    for field in fields(Facts):
        if getattr(baseline.facts, field.name) is None and field.name != "load":
            looked = f" (looked for in {looked_in(field.name)})" if field.name in PLACES else ""
            unknown.append(f"{field.name}{looked}")
    return tuple(unknown)
