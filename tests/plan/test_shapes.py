"""Which shapes there are, and what they are called."""

from __future__ import annotations

import pytest

from pointsman import InputError
from pointsman.plan.shapes import Shape, counts_up_to, instances_within, shape_named, shapes_of


@pytest.mark.parametrize(
    ("label", "shape", "kind", "gpus"),
    [
        ("4xTP1", Shape(4), "replicas", 4),
        ("2xTP2", Shape(2, 2), "tp_pp", 4),
        ("1xTP1PP4", Shape(1, 1, 4), "tp_pp", 4),
        ("3xTP2PP2", Shape(3, 2, 2), "tp_pp", 12),
        ("1P3DxTP2", Shape(4, 2, 1, 1), "disaggregated", 8),
    ],
)
def test_a_label_says_all_of_a_shape(label, shape, kind, gpus):
    assert shape_named(label) == shape
    assert (shape.label, shape.kind, shape.gpus) == (label, kind, gpus)


@pytest.mark.parametrize(
    "text", ["", "4", "TP2", "0xTP1", "0P3DxTP1", "2P0DxTP1", "4xTP0", "4xPP2"]
)
def test_what_is_no_shape_is_refused_with_an_example(text):
    with pytest.raises(InputError, match=r"expected .*a shape such as 4xTP2"):
        shape_named(text)


def test_four_gpus_have_these_shapes():
    pairs = instances_within(4, gpus_per_node=8, layers=32)
    assert pairs == [(1, 1), (2, 1), (1, 2), (4, 1), (2, 2), (1, 4)]
    labels = {shape.label for shape in shapes_of(pairs, 4)}
    whole = {"1xTP1", "2xTP1", "3xTP1", "4xTP1", "1xTP2", "2xTP2", "1xTP1PP2", "2xTP1PP2"}
    single = {"1xTP4", "1xTP2PP2", "1xTP1PP4"}
    splits = {"1P1DxTP1", "1P2DxTP1", "2P1DxTP1", "1P3DxTP1", "2P2DxTP1", "3P1DxTP1", "1P1DxTP2"}
    assert labels == whole | single | splits


def test_instances_end_at_the_node_and_at_the_layers():
    assert instances_within(4, gpus_per_node=2, layers=2) == [(1, 1), (2, 1), (1, 2), (2, 2)]


def test_of_many_replicas_not_every_count_is_tried_but_the_most_is():
    assert counts_up_to(8) == [1, 2, 3, 4, 5, 6, 7, 8]
    assert counts_up_to(40) == [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 40]
    assert counts_up_to(0) == []


def test_every_shape_is_there_once_and_on_no_more_gpus_than_there_are():
    shapes = shapes_of(instances_within(48, 8, 32), 48)
    assert len(set(shapes)) == len(shapes)
    assert max(shape.gpus for shape in shapes) == 48
    assert {48, 24} <= {shape.replicas for shape in shapes if shape.prefill}
