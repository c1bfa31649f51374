from __future__ import annotations

import pytest
from hypothesis import given

from pointsman.core.errors import InputError
from pointsman.workload.builder import Row, WorkloadBuilder
from pointsman.workload.numbering import first_appearances
from tests.strategies import workloads


def test_names_are_numbered_in_order_of_arrival():
    builder = WorkloadBuilder(16)
    builder.add(Row(9.0, service_ms=1.0, session="late", chain=("x", "y")), "row 0")
    builder.add(Row(2.0, service_ms=1.0, session="early", chain=("z", "x")), "row 1")
    workload = builder.build()
    assert workload.names.sessions == ("early", "late")
    assert workload.session.tolist() == [0, 1]
    assert workload.names.blocks == ("z", "x", "y")
    assert workload.chain_blocks.tolist() == [0, 1, 1, 2]


def test_names_that_are_their_own_numbers_are_not_kept():
    builder = WorkloadBuilder()
    builder.add(Row(0.0, service_ms=1.0, session="0", chain=(0,)), "row 0")
    builder.add(Row(1.0, service_ms=1.0, session="1", chain=(1,)), "row 1")
    names = builder.build().names
    assert (names.sessions, names.adapters, names.blocks) == (None, None, None)


def test_a_refused_row_leaves_no_trace():
    builder = WorkloadBuilder()
    builder.add(Row(0.0, request_id="a", service_ms=1.0), "row 0")
    with pytest.raises(InputError, match="row 1: request_id is 'a'"):
        builder.add(Row(1.0, request_id="a", service_ms=2.0, session="s", chain=("b",)), "row 1")
    workload = builder.build()
    assert len(workload) == 1
    assert (workload.session_count, workload.block_count) == (0, 0)


def test_no_rows_are_a_workload_too():
    assert len(WorkloadBuilder().build()) == 0


def test_the_span_is_from_the_earliest_to_the_latest_row():
    builder = WorkloadBuilder()
    for arrival_ms in (5.0, 2.0, 3.0):
        builder.add(Row(arrival_ms, service_ms=1.0), "row")
    assert builder.span_ms == 3.0


@given(workloads())
def test_every_numbering_is_dense_and_by_first_appearance(workload):
    for numbers in (workload.session, workload.adapter, workload.chain_blocks):
        appearances = first_appearances(numbers)
        assert appearances.tolist() == list(range(appearances.size))
