"""Every replica of a group has GPUs of its own."""

from __future__ import annotations

import pytest

from pointsman.bench.engines.placement import on_gpus
from pointsman.bench.engines.protocol import Instance, Model
from pointsman.core.errors import InputError

MODEL = Model("org/small", "small")


def test_replicas_get_one_gpu_a_rank_that_no_other_has():
    placed = on_gpus([Instance(MODEL, tp=2), Instance(MODEL, pp=2)], ("0", "1", "2", "3"))
    assert [each.gpus for each in placed] == [("0", "1"), ("2", "3")]


def test_who_names_its_gpus_keeps_them_and_who_runs_already_needs_none():
    named, there = Instance(MODEL, gpus=("1",)), Instance(MODEL, url="http://a:1")
    placed = on_gpus([Instance(MODEL), named, there, Instance(MODEL)], ("0", "1", "2"))
    assert [each.gpus for each in placed] == [("0",), ("1",), (), ("2",)]


def test_too_few_gpus_are_refused():
    with pytest.raises(InputError, match="wants 3 GPUs; expected at most 2"):
        on_gpus([Instance(MODEL, tp=2), Instance(MODEL)], ("0", "1"))
