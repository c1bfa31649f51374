"""When a cache is said to thrash, and in what words."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pointsman.metrics.replicas import ReplicaLoads
from pointsman.metrics.serving import serving_metrics
from pointsman.metrics.thrashing import thrashes, thrashing_warnings
from tests.metrics.offered import FIVE

LOADS = ReplicaLoads(*(np.ones(2) for _ in range(4)), evictions=np.array([2, 5]))


def metrics(*recomputed: int):
    """Of 100 + 60 + 40 prompt tokens that finished; the last two requests did not."""
    answers = replace(FIVE, recomputed_tokens=np.array([*recomputed, 50, 70]))
    return serving_metrics(answers, LOADS, None, gpus=1)


def test_the_fraction_is_of_the_prompt_tokens_of_finished_requests():
    assert metrics(10, 0, 20).recomputed_token_fraction == 30 / 200
    assert metrics(10, 0, 20).evictions == 7


def test_nobody_counted_is_no_fraction_and_no_warning():
    silent = serving_metrics(FIVE, replace(LOADS, evictions=None), None, gpus=1)
    assert silent.recomputed_token_fraction is silent.evictions is None
    assert thrashing_warnings([("silent", silent)]) == ()


@pytest.mark.parametrize(("tokens", "said"), [(20, False), (21, True)])
def test_it_thrashes_where_more_than_a_tenth_is_computed_again(tokens, said):
    assert thrashes(metrics(tokens, 0, 0)) is said


def test_one_sentence_names_who_thrashes():
    runs = [("well", metrics(0, 0, 0)), ("ill", metrics(50, 0, 0)), ("worse", metrics(90, 0, 0))]
    (sentence,) = thrashing_warnings(runs)
    assert "ill 25.0%, worse 45.0% of the prompt tokens had been cached" in sentence
    assert "sensitive to the cache's exact size and order of eviction" in sentence
    assert "well" not in sentence


def test_of_many_some_are_named_and_the_others_counted():
    (sentence,) = thrashing_warnings([(f"s{k}", metrics(50, 0, 0)) for k in range(6)])
    assert "s3 25.0% and 2 more of the prompt tokens" in sentence
