from __future__ import annotations

import numpy as np

from pointsman.workload.numbering import Numbering, first_appearances, renumbered, texts


def ints(*values: int):
    return np.array(values, dtype=np.int32)


def test_a_new_name_gets_the_next_number():
    numbering = Numbering()
    assert [numbering[name] for name in ("b", "a", "b")] == [0, 1, 0]


def test_first_appearances_are_in_order_and_skip_what_is_absent():
    assert first_appearances(ints(5, -1, 2, 5, 9, 2)).tolist() == [5, 2, 9]


def test_renumbering_puts_each_numbers_place_and_keeps_the_absent():
    assert renumbered(ints(5, -1, 2, 5, 9, 2), ints(5, 2, 9)).tolist() == [0, -1, 1, 0, 2, 1]


def test_an_array_without_numbers_stays():
    empty = first_appearances(ints(-1, -1))
    assert empty.tolist() == []
    assert renumbered(ints(-1, -1), empty).tolist() == [-1, -1]


def test_texts_are_none_where_every_name_is_its_number():
    assert texts([0, 1, 2]) is None
    assert texts(["0", "1"]) is None
    assert texts([1, 0]) == ("1", "0")
