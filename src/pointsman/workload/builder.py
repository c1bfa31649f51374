"""Rows one by one into a Workload: the path that every reader and the lessons' dicts take."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from pointsman.core.errors import InputError, missing_field, wrong_value
from pointsman.workload.chains import Chains
from pointsman.workload.numbering import Numbering, in_order_of_appearance
from pointsman.workload.workload import (
    MAX_TOKENS,
    MISSING,
    Ints,
    Longs,
    Names,
    Source,
    Workload,
    workload_of_columns,
)

_NAN = float("nan")


class Row(msgspec.Struct, frozen=True, gc=False):
    """One request, already validated by whoever read it; times in ms.

    Either ``service_ms`` or both token counts are given. ``chain`` are its block ids, each equal
    to another request's id exactly where the text up to there is equal. ``prefix_tokens`` is what
    the chain covers, all blocks but the last being whole; None: whole blocks.
    """

    arrival_ms: float
    request_id: str | None = None
    service_ms: float | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    session: Hashable | None = None
    adapter: Hashable | None = None
    chain: Sequence[Hashable] = ()
    prefix_tokens: int | None = None
    priority: int = 0


class WorkloadBuilder:
    """Collects rows in any order; ``build`` sorts them by arrival and makes the columns.

    Equal arrivals are ordered by request id as a string where ids are given (the lesson on
    serving replica routing), else as they came. Sessions, adapters and blocks are numbered in
    order of first appearance in the sorted rows.
    """

    def __init__(self, block_size_tokens: int = 1) -> None:
        self.block_size_tokens = block_size_tokens
        self.rows = 0
        self._arrival = array("d")
        self._service = array("d")
        self._prompt = array("i")
        self._output = array("i")
        self._session = array("i")
        self._adapter = array("i")
        self._prefix = array("i")
        self._priority = array("i")
        self._chains = Chains()
        self._ids: dict[str, int] = {}
        self._sessions = Numbering()
        self._adapters = Numbering()

    def add(self, row: Row, where: str) -> None:
        """Append a row; one that is refused leaves no trace.

        Raises InputError for a request id that was seen before, for rows with and without an
        id in one workload, and for a chain that covers no more than its blocks before the last.
        """
        covered_tokens = self._covered(row, where) if row.chain else row.prefix_tokens or 0
        if row.request_id is not None or self._ids:
            self._admit_id(row.request_id, where)
        self._arrival.append(row.arrival_ms)
        self._service.append(_NAN if row.service_ms is None else row.service_ms)
        self._prompt.append(MISSING if row.prompt_tokens is None else row.prompt_tokens)
        self._output.append(MISSING if row.output_tokens is None else row.output_tokens)
        session, adapter = row.session, row.adapter
        self._session.append(MISSING if session is None else self._sessions[session])
        self._adapter.append(MISSING if adapter is None else self._adapters[adapter])
        self._prefix.append(covered_tokens)
        self._priority.append(row.priority)
        self._chains.add(row.chain)
        self.rows += 1

    def _admit_id(self, request_id: str | None, where: str) -> None:
        if request_id is None:
            if self._ids:
                raise missing_field(where, "request_id", "one in every row, as in those above")
            return
        if len(self._ids) != self.rows:
            raise wrong_value(where, "request_id", request_id, "none, as in the rows above")
        if self._ids.setdefault(request_id, self.rows) != self.rows:
            raise wrong_value(where, "request_id", request_id, "an id not used before")

    def _covered(self, row: Row, where: str) -> int:
        blocks, block_tokens = len(row.chain), self.block_size_tokens
        covered = row.prefix_tokens
        if covered is None:
            covered = blocks * block_tokens
            if row.prompt_tokens is not None:
                covered = min(covered, row.prompt_tokens)
        if covered > MAX_TOKENS:
            raise InputError(
                f"{where}: {blocks} blocks of {block_tokens} tokens;"
                f" expected at most {MAX_TOKENS} tokens"
            )
        # Else one who holds all blocks but the last would have more tokens than one who holds all.
        if blocks > 1 and (blocks - 1) * block_tokens >= covered:
            raise InputError(
                f"{where}: {blocks} blocks of {block_tokens} tokens cover {covered};"
                f" expected more than the {(blocks - 1) * block_tokens} of all but the last block"
            )
        return covered

    @property
    def span_ms(self) -> float:
        """From the earliest arrival so far to the latest; 0 without rows."""
        return max(self._arrival, default=0.0) - min(self._arrival, default=0.0)

    def order(self) -> Longs:
        """The rows, as added, in the order of the workload."""
        arrival = np.frombuffer(self._arrival, dtype=np.float64)
        by_arrival = np.argsort(arrival, kind="stable")
        if not self._ids:
            return by_arrival
        ties = arrival[by_arrival]
        if not np.any(ties[1:] == ties[:-1]):
            return by_arrival
        ids = list(self._ids)
        return np.array(
            sorted(range(self.rows), key=lambda row: (self._arrival[row], ids[row])),
            dtype=np.int64,
        )

    def build(self, source: Source | None = None) -> Workload:
        """The columns, checked, in order of arrival."""
        order = self.order()
        arrival = np.frombuffer(self._arrival, dtype=np.float64)
        out_of_order = int(np.count_nonzero(arrival < np.maximum.accumulate(arrival)))
        source = replace(source or Source(), out_of_order=out_of_order)
        if not np.array_equal(order, np.arange(self.rows)):
            source = replace(source, lines=())
        starts, blocks, block_names = self._chains.in_order(order)
        session, sessions = in_order_of_appearance(_ints(self._session)[order], self._sessions)
        adapter, adapters = in_order_of_appearance(_ints(self._adapter)[order], self._adapters)
        return workload_of_columns(
            arrival[order],
            service_ms=np.frombuffer(self._service, dtype=np.float64)[order],
            prompt_tokens=_ints(self._prompt)[order],
            output_tokens=_ints(self._output)[order],
            session=session,
            adapter=adapter,
            chain_start=starts,
            chain_blocks=blocks,
            prefix_tokens=_ints(self._prefix)[order],
            block_size_tokens=self.block_size_tokens,
            priority=_ints(self._priority)[order],
            names=Names(self._ids_in(order), sessions, adapters, block_names),
            source=source,
        )

    def _ids_in(self, order: Longs) -> tuple[str, ...] | None:
        if not self._ids:
            return None
        ids = list(self._ids)
        return tuple([ids[row] for row in order])


def _ints(column: array[Any]) -> Ints:
    return np.frombuffer(column, dtype=np.int32)
