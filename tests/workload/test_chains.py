from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pointsman.workload.chains import Chains, numbered

ids = st.integers(-3, 12) | st.integers() | st.text(max_size=2)


def read(*chains, order=None):
    """The rows' numbers and the names, from a Chains."""
    taken = Chains()
    for chain in chains:
        taken.add(chain)
    order = np.arange(len(chains)) if order is None else np.array(order)
    starts, numbers, names = taken.in_order(order)
    assert numbers.dtype == np.int32
    bounds = starts.tolist()
    rows = [numbers[a:b].tolist() for a, b in pairwise(bounds)]
    return rows, names


def test_numbers_that_are_dense_and_in_order_stand_for_themselves():
    assert read([0, 1], [0, 2]) == ([[0, 1], [0, 2]], None)


def test_other_integers_are_numbered_by_first_appearance_and_keep_their_names():
    assert read([7, 5], [], [7, 9]) == ([[0, 1], [], [0, 2]], ("7", "5", "9"))


@pytest.mark.parametrize("far", [-4, 2**40, 2**63 - 1, 2**63])
def test_integers_of_any_size_are_taken(far):
    assert read([3, far], [far]) == ([[0, 1], [1]], ("3", str(far)))


def test_a_name_after_integers_leaves_what_was_there_as_it_was():
    assert read([5, 6], [5, "a"], [6]) == ([[0, 1], [0, 2], [1]], ("5", "6", "a"))


def test_numbers_follow_the_order_of_the_rows_not_that_of_adding():
    assert read([8, 9], [7], [9], order=[2, 0, 1]) == ([[0], [1, 0], [2]], ("9", "8", "7"))
    assert read(["y"], ["x", "y"], order=[1, 0]) == ([[0, 1], [1]], ("x", "y"))


def test_no_rows_have_no_blocks():
    assert read() == ([], None)
    assert read([], []) == ([[], []], None)


@given(st.lists(st.lists(ids, max_size=4), max_size=5))
def test_equal_numbers_are_equal_ids(chains):
    rows, _ = read(*chains)
    flat = [name for chain in chains for name in chain]
    numbers = [number for row in rows for number in row]
    known: dict = {}
    assert numbers == [known.setdefault(name, len(known)) for name in flat]


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 9)))
def test_the_distinct_ids_give_back_what_was_numbered(values):
    given_ids = np.array(values, dtype=np.int64)
    numbers, distinct = numbered(given_ids)
    assert distinct[numbers].tolist() == values
    assert len(set(distinct.tolist())) == distinct.size
