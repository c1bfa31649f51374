"""What may be compared, and that everything else is refused by name."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pointsman import InputError
from pointsman.evidence.comparable import compare_facts
from pointsman.evidence.group import group_of_envelope, group_of_lesson_file
from tests.evidence.groups import BACKEND, FAST, HARDWARE, SLOW, TWO, WORKLOAD, group, with_repeats
from tests.evidence.groups import three_groups as made_groups
from tests.evidence.test_checking import LESSON_GROUP

G0, G1, G2 = made_groups()
change = msgspec.structs.replace


def of_model(**changes):
    return change(G1, backend=change(BACKEND, model=change(BACKEND.model, **changes)))


def view(envelope):
    return group_of_envelope(envelope, Path(f"{envelope.group}.json"), b"")


def compared(baseline, candidate, *vary):
    return compare_facts(view(baseline), view(candidate), vary)


@pytest.mark.parametrize(
    ("candidate", "varies"),
    [(G1, ("replicas",)), (G2, ("mode",)), (change(G0, layout=change(G0.layout, tp=2)), None)],
)
def test_what_is_under_test_is_named(candidate, varies):
    assert compared(G0, candidate).varies == (varies or ("parallel",))


def test_two_policies_on_the_same_replicas_differ_in_the_policy():
    other = change(G1, group="g1b", layout=change(TWO, policy="round_robin"))
    assert compared(other, G1).varies == ("policy",)


@pytest.mark.parametrize(
    ("field", "candidate"),
    [
        ("model", of_model(id="other")),
        ("model_revision", of_model(revision="r2")),
        ("tokenizer", of_model(tokenizer="other")),
        ("tokenizer_revision", of_model(tokenizer_revision="r2")),
        ("dtype", of_model(dtype="int8")),
        ("engine", change(G1, backend=change(BACKEND, engine="vllm"))),
        ("engine_version", change(G1, backend=change(BACKEND, version="b6701"))),
        ("hardware", change(G1, hardware=change(HARDWARE, cores=4))),
        ("evidence_level", change(G1, evidence_level="simulation")),
        ("workload_sha256", change(G1, workload=change(WORKLOAD, sha256="cd" * 32))),
        ("requests", change(G1, workload=change(WORKLOAD, requests=99))),
        ("load", change(G1, workload=change(WORKLOAD, load="closed"))),
        ("concurrency", change(G1, workload=change(WORKLOAD, concurrency=16))),
        ("max_tokens", change(G1, workload=change(WORKLOAD, max_tokens=None))),
        ("cache", with_repeats(G1, cache="carried")),
    ],
)
def test_a_difference_that_is_not_under_test_stops_it_and_is_named(field, candidate):
    with pytest.raises(InputError) as caught:
        compared(G0, candidate)
    assert f"not comparable: {field}: " in str(caught.value)


@pytest.mark.parametrize("changed", [{"concurrency": 16}, {"sha256": "cd" * 32}])
def test_a_change_of_load_is_no_result_of_a_strategy_and_never_under_test(changed):
    candidate = change(G1, workload=change(WORKLOAD, **changed))
    with pytest.raises(InputError, match="load sensitivity, no result of a strategy"):
        compared(G0, candidate, "replicas", "policy", "engine", "model")


def test_policies_on_unlike_replicas_are_not_compared():
    four = change(G1, group="g1b", layout=change(TWO, replicas=4, policy="round_robin"))
    with pytest.raises(InputError, match=r"policy and replicas differ .*--vary policy replicas"):
        compared(G1, four)
    assert compared(G1, four, "policy", "replicas").varies == ("policy", "replicas")


def test_what_is_named_may_differ_and_nothing_else():
    engine = change(G0, group="g0b", backend=change(BACKEND, engine="vllm", version="0.32.0"))
    assert compared(G0, engine, "engine").varies == ("engine",)
    with pytest.raises(InputError, match="engine: 'llamacpp' against 'vllm'"):
        compared(G0, engine, "dtype")


def test_where_nothing_differs_nothing_is_under_test():
    with pytest.raises(InputError, match="nothing differs"):
        compared(G0, group("g0_again", G0.layout, SLOW))


def test_what_can_never_be_under_test_is_refused():
    with pytest.raises(InputError, match=r"--vary 'polcy' is unknown.*did you mean policy?"):
        compared(G0, G1, "polcy")


def test_what_neither_file_states_is_not_known_to_be_the_same():
    nameless = change(BACKEND, version=None)
    found = compared(change(G0, backend=nameless), change(G1, backend=nameless))
    assert [text.split(" ")[0] for text in found.unknown] == ["engine_version"]


def test_what_only_one_file_states_is_a_difference():
    with pytest.raises(InputError, match="engine_version: 'b6700' against None"):
        compared(G0, change(G1, backend=change(BACKEND, version=None)))


def test_files_of_the_lesson_are_compared_by_what_they_say():
    one = {**LESSON_GROUP, "workload": {"prompt_tokens": 512, "replicas": 1}}
    two = {**LESSON_GROUP, "workload": {"prompt_tokens": 512, "replicas": 2}}
    groups = [group_of_lesson_file(each, Path("x.json"), b"") for each in (one, two)]
    found = compare_facts(*groups)
    assert found.varies == ("replicas",)
    unknown = [text.split(" ")[0] for text in found.unknown]
    assert unknown[:2] == ["model", "model_revision"]
    longer = {**two, "workload": {"prompt_tokens": 1024, "replicas": 2}}
    with pytest.raises(InputError, match="load sensitivity"):
        compare_facts(groups[0], group_of_lesson_file(longer, Path("y.json"), b""))


def test_loads_of_a_split_are_even_or_not_within_each_side():
    assert view(G2).imbalance_ratio == 0.0
    assert view(G1).imbalance_ratio == pytest.approx(1600 / 28_800)
    assert view(group("g1", TWO, FAST)).imbalance_ratio is None
