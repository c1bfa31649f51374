"""A plan on a local Ray of two workers."""

from __future__ import annotations

import warnings
from dataclasses import replace

import msgspec
import pytest

from pointsman.plan.parallel import LOCAL_RAY, Workers
from pointsman.plan.plan import How, make_plan
from tests.plan import made

pytestmark = [
    pytest.mark.ray,
    # Ray's own, at its start and its end.
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def test_a_cluster_gives_the_same_results_as_one_process():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("ray", reason="Ray is not installed (extra [ray])")
    how = How(kinds=("replicas", "disaggregated"), workers=Workers(jobs=1))
    arguments = ((made.steady(4.0),), made.hardware(3), made.question())
    alone = make_plan(*arguments, how)
    done = []
    cluster = replace(how, workers=Workers(2, LOCAL_RAY), on_shape=done.append)
    together = make_plan(*arguments, cluster)
    assert msgspec.json.encode(together.results) == msgspec.json.encode(alone.results)
    assert sorted(done) == sorted(result.shape.label for result in alone.results)
