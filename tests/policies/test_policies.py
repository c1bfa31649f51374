"""Each rule on views worked out by hand, and how a policy is made, bound and found."""

from __future__ import annotations

import random as stdlib_random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pointsman import POLICIES, InputError, policy, policy_named
from pointsman.policies.catalogue import EVERYWHERE
from pointsman.policies.policy import CACHED_TOKENS, FREE_AT_MS, REQUEST, REQUESTS, ROWS
from pointsman.policies.waits import shortest_wait


def choose(name, *, free_at=(0.0,), requests=None, cached=None, parameters=None, **request):
    rule = POLICIES[name].bind(**(parameters or {}))
    view = np.zeros((ROWS, len(free_at)))
    view[FREE_AT_MS] = free_at
    view[REQUESTS] = 0 if requests is None else requests
    view[CACHED_TOKENS] = 0 if cached is None else cached
    row = np.zeros(1, dtype=REQUEST)
    row["home"] = -1
    row["longest_hit_tokens"] = view[CACHED_TOKENS].max()
    for field, value in request.items():
        row[field] = value
    candidate, reason = rule.choose(row[0], view, rule.parameter_values)
    return candidate, rule.reasons[reason]


def test_round_robin_takes_turns():
    turns = [choose("round_robin", free_at=(0, 0, 0), sequence=i)[0] for i in range(5)]
    assert turns == [0, 1, 2, 0, 1]


def test_queue_aware_takes_the_shortest_wait():
    assert choose("queue_aware", free_at=(9, 4, 7)) == (1, "shortest_queue")


def test_queue_aware_takes_the_lowest_index_among_idle_ones():
    assert choose("queue_aware", free_at=(9, 4, 2), now_ms=5.0)[0] == 1


def test_waits_that_round_to_the_same_are_equal():
    now_ms = 1e9
    free_at = (now_ms + 1.0, np.nextafter(now_ms + 1.0, 0) - 1e-9)
    waits = [max(0.0, at - now_ms) for at in free_at]
    assert choose("queue_aware", free_at=free_at, now_ms=now_ms)[0] == waits.index(min(waits))


def test_locality_prefers_the_home_then_the_prefix_then_the_queue():
    free_at, cached = (8, 0, 6), (0, 0, 64)
    slack = {"slack_ms": 8.0}
    given = {"free_at": free_at, "cached": cached, "parameters": slack}
    assert choose("locality_aware", home=0, **given) == (0, "sticky_session")
    assert choose("locality_aware", home=-1, **given) == (2, "prefix_locality")
    tight = {**given, "parameters": {"slack_ms": 5.0}}
    assert choose("locality_aware", home=0, **tight) == (1, "queue_fallback")


def test_locality_falls_through_a_busy_home_to_the_prefix():
    given = {"free_at": (20, 0, 4), "cached": (0, 0, 64), "parameters": {"slack_ms": 5.0}}
    assert choose("locality_aware", home=0, **given) == (2, "prefix_locality")


def test_locality_takes_the_longest_prefix_within_the_slack():
    given = {"cached": (32, 512, 64, 512), "parameters": {"slack_ms": 5.0}}
    assert choose("locality_aware", free_at=(0, 4, 3, 2), **given) == (3, "prefix_locality")
    assert choose("locality_aware", free_at=(0, 4, 3, 9), **given) == (1, "prefix_locality")
    assert choose("locality_aware", free_at=(0, 9, 3, 9), **given) == (2, "prefix_locality")
    assert choose("locality_aware", free_at=(0, 9, 9, 9), **given) == (0, "prefix_locality")


def test_a_wait_of_exactly_the_slack_is_allowed():
    given = {"free_at": (5, 0), "cached": (64, 0), "parameters": {"slack_ms": 5.0}}
    assert choose("locality_aware", **given) == (0, "prefix_locality")


def test_least_requests_takes_the_fewest_and_equals_in_turn():
    given = {"free_at": (0, 0, 0), "requests": (2, 1, 1)}
    assert [choose("least_requests", sequence=i, **given)[0] for i in range(3)] == [1, 1, 2]


def test_power_of_two_takes_the_emptier_of_the_two_drawn():
    given = {"free_at": (0, 0, 0), "requests": (5, 0, 3)}
    # 0.5 x 3 = 1.5: first 1, the rest 0.5 x 2 = 1 -> second 2 (one past the first).
    assert choose("power_of_two", random=0.5, **given)[0] == 1
    # 0.95 x 3 = 2.85: first 2, the rest 0.85 x 2 -> second 1.
    assert choose("power_of_two", random=0.95, **given)[0] == 1
    # 0.1 x 3 = 0.3: first 0, the rest 0.3 x 2 -> second 0 -> 1.
    assert choose("power_of_two", random=0.1, **given)[0] == 1


def test_power_of_two_draws_every_ordered_pair_equally_often():
    n = 4
    draws = (np.arange(12_000) + 0.5) / 12_000
    full = (9,) * n
    firsts = [choose("power_of_two", free_at=full, requests=full, random=u)[0] for u in draws]
    assert np.bincount(firsts).tolist() == [3000] * n  # equal counts: the first drawn is taken
    emptier = [
        choose("power_of_two", free_at=full, requests=(0, 9, 9, 9), random=u)[0] for u in draws
    ]
    assert emptier.count(0) == 6000  # drawn first in 1/4, second in 3/4 x 1/3 of the draws


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(sorted(EVERYWHERE)),
    st.lists(st.floats(0, 1e6), min_size=1, max_size=70),
    st.floats(0, 1e6),
    st.integers(0, 10**9),
    st.floats(0, 1, exclude_max=True),
)
def test_every_policy_picks_a_candidate_whatever_waits_there(name, free_at, now_ms, sequence, draw):
    candidate, _ = choose(
        name, free_at=free_at, requests=free_at, now_ms=now_ms, sequence=sequence, random=draw
    )
    assert 0 <= candidate < len(free_at)


def test_binding_sets_parameters_and_keeps_the_compiled_function():
    rule = POLICIES["locality_aware"]
    bound = rule.bind(slack_ms=20)
    assert bound.label == "locality_aware(slack_ms=20)"
    assert rule.parameters == {"slack_ms": 5.0}
    assert bound.choose is rule.choose


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("locality_awre", r"policy 'locality_awre' is unknown.*did you mean locality_aware\?"),
        ("locality_aware:slak_ms=3", r"parameter 'slak_ms' is unknown.*did you mean slack_ms\?"),
        ("locality_aware:slack_ms=-3", r"slack_ms is -3.0; expected a finite number >= 0"),
        ("locality_aware:slack_ms=nan", r"slack_ms is nan"),
        ("locality_aware:slack_ms=inf", r"slack_ms is inf"),
        ("locality_aware:slack_ms=much", r"slack_ms is 'much'"),
        ("locality_aware:slack_ms", r"'slack_ms' is no parameter; expected NAME=NUMBER"),
        ("round_robin:slack_ms=3", r"round_robin takes no parameters"),
        ("nowhere.py:mine", r"policy file nowhere.py does not exist"),
        ("nowhere.py", r"no name; expected FILE.py:NAME"),
    ],
)
def test_a_policy_that_cannot_be_found_is_an_error_that_says_what_to_write(text, message):
    with pytest.raises(InputError, match=message):
        policy_named(text)


USER_POLICY = """
from pointsman.policies.policy import FREE_AT_MS, policy

@policy(rule="The busiest.", source="nobody", reasons=("busiest",), parameters={"bias": 0.0},
        reads=("queue",))
def busiest(request, view, parameters):
    best = 0
    for i in range(view.shape[1]):
        if view[FREE_AT_MS, i] > view[FREE_AT_MS, best] + parameters[0]:
            best = i
    return best, 0
"""


def test_a_policy_from_a_file_is_loaded_and_bound(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(USER_POLICY)
    assert policy_named(f"{file}:busiest:bias=2").parameters == {"bias": 2.0}
    with pytest.raises(InputError, match=r"policy 'busyest' is unknown.*did you mean busiest"):
        policy_named(f"{file}:busyest")


@pytest.mark.parametrize("broken", ["def (", "import nothing_like_it", "1 / 0"])
def test_a_policy_file_that_does_not_load_is_one_error(tmp_path, broken):
    file = tmp_path / "broken.py"
    file.write_text(broken)
    with pytest.raises(InputError, match=r"broken\.py: cannot be loaded"):
        policy_named(f"{file}:mine")


def test_a_policy_that_does_not_compile_is_one_error():
    @policy(rule="none", source="none", reasons=("none",))
    def prints(request, view, parameters):
        return open("x").read()

    with pytest.raises(InputError, match="policy prints does not compile"):
        prints.choose  # noqa: B018


def test_unknown_signals_and_no_reasons_are_refused_when_a_policy_is_made():
    with pytest.raises(InputError, match=r"signal 'queues' is unknown.*did you mean queue"):
        policy(rule="", source="", reasons=("x",), reads=("queues",))(lambda *_: (0, 0))
    with pytest.raises(InputError, match=r"reasons is \(\)"):
        policy(rule="", source="", reasons=())(lambda *_: (0, 0))


def test_every_policy_of_the_catalogue_says_its_rule_and_source():
    for name, rule in POLICIES.items():
        assert rule.name == name
        assert rule.rule
        assert rule.source
        assert rule.reasons


def made(function, **given):
    return policy(rule="r", source="s", reasons=("r",), **given)(function)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"parameters": {"x": "abc"}}, "x is 'abc'"),
        ({"parameters": {"x": float("inf")}}, "x is inf"),
        ({"parameters": {"x": -1.0}}, "x is -1.0"),
    ],
)
def test_parameters_are_finite_numbers(given, message):
    with pytest.raises(InputError, match=message):
        made(lambda request, view, parameters: (0, 0), **given)


def test_a_policy_takes_three_arguments():
    with pytest.raises(InputError, match=r"takes \(request, view\); expected \(request, view, par"):
        made(lambda request, view: (0, 0))


@pytest.mark.parametrize("reasons", [(1, 2), ("a\r\nb",), ("x",) * 128])
def test_reasons_are_printable_names(reasons):
    with pytest.raises(InputError, match="reason"):
        policy(rule="r", source="s", reasons=reasons)(lambda request, view, parameters: (0, 0))


def test_a_signal_that_is_used_must_be_declared():
    def counts(request, view, parameters):
        return int(view[REQUESTS, 0]), 0

    with pytest.raises(
        InputError, match=r"policy counts: it uses REQUESTS, but reads is \('queue'"
    ):
        made(counts, reads=("queue",))
    assert made(counts, reads=("requests",)).reads == {"requests"}


def test_a_signal_that_a_helper_uses_must_be_declared_too():
    def waits(request, view, parameters):
        return shortest_wait(request, view), 0

    with pytest.raises(InputError, match="policy waits: it uses FREE_AT_MS"):
        made(waits, reads=("prefix",))


def test_a_policy_reaches_for_no_random_source_and_no_clock():
    def throws(request, view, parameters):
        return stdlib_random.randrange(view.shape[1]), 0

    with pytest.raises(InputError, match="policy throws: it uses the module random"):
        made(throws)


def test_an_unknown_field_of_the_request_is_one_error():
    def misspelt(request, view, parameters):
        return request.hom, 0

    with pytest.raises(InputError, match=r"policy misspelt does not compile: .*hom"):
        made(misspelt).choose  # noqa: B018


def test_reasons_are_not_one_string():
    with pytest.raises(InputError, match="reasons is 'home'; expected a tuple"):
        policy(rule="r", source="s", reasons="home")(lambda *_: (0, 0))


def test_a_file_may_import_its_neighbours(tmp_path):
    (tmp_path / "constants.py").write_text("CHOICE = 0\n")
    (tmp_path / "neighbourly.py").write_text(
        "from constants import CHOICE\n"
        "from pointsman.policies.policy import policy\n"
        "@policy(rule='r', source='s', reasons=('r',), reads=())\n"
        "def first(request, view, parameters):\n"
        "    return CHOICE, 0\n"
    )
    assert policy_named(f"{tmp_path / 'neighbourly.py'}:first").name == "first"


def test_a_file_without_a_policy_says_so(tmp_path):
    (tmp_path / "empty.py").write_text("x = 1\n")
    with pytest.raises(InputError, match=r"empty\.py: no @policy in it; expected mine"):
        policy_named(f"{tmp_path / 'empty.py'}:mine")
