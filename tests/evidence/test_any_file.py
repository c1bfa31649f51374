"""Whatever a file holds: a report, and one clear error or a decision."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman import InputError
from pointsman.evidence.checking import check_file
from pointsman.evidence.deciding import Choice, decide_files
from pointsman.evidence.judging import Rule
from pointsman.verdict.decide import Limits
from tests.evidence.test_checking import (
    LESSON_GROUP,
    LESSON_MECHANISM,
    OUR_MECHANISM,
    OURS,
    RANK_ROW,
)

OLDER = {**LESSON_MECHANISM, "metrics": {"rows": [RANK_ROW, {**RANK_ROW, "rank": 1}]}}
SOUND = (LESSON_GROUP, LESSON_MECHANISM, OLDER, OURS, OUR_MECHANISM)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=4,
)


def places(value, path=()):
    """The path of every part of a document."""
    keys = value if isinstance(value, dict) else range(len(value) if isinstance(value, list) else 0)
    for key in keys:
        yield (*path, key)
        yield from places(value[key], (*path, key))


@st.composite
def spoilt(draw):
    """A sound document with one part, or two, replaced by something else."""
    document = json.loads(json.dumps(draw(st.sampled_from(SOUND))))
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(sorted(places(document), key=str)))
        part = document
        for key in path[:-1]:
            part = part[key]
        part[path[-1]] = draw(anything)
    return document


@given(spoilt())
def test_a_spoilt_file_is_reported_and_decided_or_refused(document):
    with tempfile.TemporaryDirectory() as folder:
        file, base = Path(folder, "g.json"), Path(folder, "base.json")
        file.write_text(json.dumps(document))
        base.write_text(json.dumps({**LESSON_GROUP, "replicas": 1}))
        check_file(file)
        with contextlib.suppress(InputError):
            decide_files([base, file], "run-1", Choice(baseline="base"), Rule(Limits(0.8, 0.05)))


@pytest.mark.parametrize("kind", [[], {}, None, 3, "serving"])
def test_a_kind_that_is_none_is_a_problem(tmp_path, kind):
    file = tmp_path / "g.json"
    file.write_text(json.dumps({**OURS, "kind": kind}))
    assert check_file(file).problems
