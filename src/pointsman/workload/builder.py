"""Rows one by one into a Workload: the path that every reader and the lessons' dicts take."""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pointsman.core.errors import wrong_value
from pointsman.workload.workload import MISSING, Names, Source, Workload, workload_of_columns


@dataclass(frozen=True, slots=True)
class Row:
    """One request, already validated by whoever read it; times in ms.

    Either ``service_ms`` or both token counts are given. ``chain`` are its block ids, each equal
    to another request's id exactly where the text up to there is equal. ``prefix_tokens`` is what
    the chain covers; None: whole blocks.
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


class _Interned:
    """Names to dense integers, in order of first appearance."""

    def __init__(self) -> None:
        self.numbers: dict[Hashable, int] = {}

    def number(self, name: Hashable | None) -> int:
        if name is None:
            return MISSING
        return self.numbers.setdefault(name, len(self.numbers))

    def names(self) -> tuple[str, ...]:
        return tuple(str(name) for name in self.numbers)


class WorkloadBuilder:
    """Collects rows in any order; ``build`` sorts them by arrival and makes the columns.

    Equal arrivals are ordered by request id as a string where ids are given (the lesson on
    serving replica routing), else as they came.
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
        self._chain_start = array("q", [0])
        self._chain = array("i")
        self._ids: dict[str, int] = {}
        self._sessions = _Interned()
        self._adapters = _Interned()
        self._blocks = _Interned()

    def add(self, row: Row, where: str) -> None:
        """Append a row. Raises InputError for a request id that was seen before."""
        if row.request_id is not None:
            first = self._ids.setdefault(row.request_id, self.rows)
            if first != self.rows:
                raise wrong_value(where, "request_id", row.request_id, "an id not used before")
        self._arrival.append(row.arrival_ms)
        self._service.append(float("nan") if row.service_ms is None else row.service_ms)
        self._prompt.append(MISSING if row.prompt_tokens is None else row.prompt_tokens)
        self._output.append(MISSING if row.output_tokens is None else row.output_tokens)
        self._session.append(self._sessions.number(row.session))
        self._adapter.append(self._adapters.number(row.adapter))
        number = self._blocks.number
        self._chain.extend([number(block) for block in row.chain])
        self._chain_start.append(len(self._chain))
        self._prefix.append(self._covered(row))
        self.rows += 1

    def _covered(self, row: Row) -> int:
        if row.prefix_tokens is not None:
            return row.prefix_tokens
        if row.prompt_tokens is None:
            return min(len(row.chain), 1)
        return min(len(row.chain) * self.block_size_tokens, row.prompt_tokens)

    def order(self) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The rows, as added, in the order of the workload."""
        arrival = np.frombuffer(self._arrival, dtype=np.float64)
        by_arrival = np.argsort(arrival, kind="stable")
        if not self._has_ids:
            return by_arrival
        ties = arrival[by_arrival]
        if not np.any(ties[1:] == ties[:-1]):
            return by_arrival
        ids = list(self._ids)
        return np.array(
            sorted(range(self.rows), key=lambda row: (self._arrival[row], ids[row])),
            dtype=np.int64,
        )

    @property
    def _has_ids(self) -> bool:
        return len(self._ids) == self.rows and self.rows > 0

    def build(self, source: Source | None = None) -> Workload:
        """The columns, checked, in order of arrival."""
        order = self.order()
        arrival = np.frombuffer(self._arrival, dtype=np.float64)
        source = source or Source()
        out_of_order = int(np.count_nonzero(arrival < np.maximum.accumulate(arrival)))
        starts, blocks = self._chains_in(order)
        ids = list(self._ids) if self._has_ids else None
        names = Names(
            requests=None if ids is None else tuple(ids[row] for row in order),
            sessions=self._sessions.names(),
            adapters=self._adapters.names(),
            blocks=self._blocks.names(),
        )

        def ordered(column: array[int]) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
            return np.frombuffer(column, dtype=np.int32)[order]

        return workload_of_columns(
            arrival[order],
            service_ms=np.frombuffer(self._service, dtype=np.float64)[order],
            prompt_tokens=ordered(self._prompt),
            output_tokens=ordered(self._output),
            session=ordered(self._session),
            adapter=ordered(self._adapter),
            chain_start=starts,
            chain_blocks=blocks,
            prefix_tokens=ordered(self._prefix),
            block_size_tokens=self.block_size_tokens,
            names=names,
            source=replace(source, out_of_order=out_of_order),
        )

    def _chains_in(
        self, order: np.ndarray[tuple[int], np.dtype[np.int64]]
    ) -> tuple[
        np.ndarray[tuple[int], np.dtype[np.int64]], np.ndarray[tuple[int], np.dtype[np.int32]]
    ]:
        starts = np.frombuffer(self._chain_start, dtype=np.int64)
        blocks = np.frombuffer(self._chain, dtype=np.int32)
        lengths = np.diff(starts)[order]
        new_starts = np.concatenate(([0], np.cumsum(lengths)))
        # Position j of the reordered blocks: its row's old start plus its place in the chain.
        places = np.arange(new_starts[-1]) - np.repeat(new_starts[:-1], lengths)
        return new_starts, blocks[np.repeat(starts[:-1][order], lengths) + places]
