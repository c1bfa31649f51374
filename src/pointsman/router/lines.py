"""Who waits for any replica: a line for each model, so that nobody waits behind one whose model
nobody serves just now. Where replicas serve several models, who came first goes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from heapq import heapify, heappop, heappush

from pointsman.router.asked import Waiting


class Lines:
    """Those that wait, by their model."""

    def __init__(self) -> None:
        self._lines: dict[str | None, OrderedDict[Waiting, None]] = {}  # none of them empty

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __contains__(self, model: str | None) -> bool:
        return model in self._lines

    @property
    def everyone(self) -> list[Waiting]:
        """All that wait in a line."""
        return [waiting for line in self._lines.values() for waiting in line]

    def add(self, waiting: Waiting, *, in_front: bool) -> None:
        """At the end of its line, or before all others."""
        line = self._lines.setdefault(waiting.asked.question.model, OrderedDict())
        line[waiting] = None
        if in_front:
            line.move_to_end(waiting, last=False)

    def remove(self, waiting: Waiting) -> bool:
        """It waits here no more; whether it did."""
        model = waiting.asked.question.model
        line = self._lines.get(model)
        if line is None or waiting not in line:
            return False
        del line[waiting]
        if not line:
            del self._lines[model]
        return True

    def let_in(self, enter: Callable[[Waiting], bool], may_enter: Callable[[], bool]) -> None:
        """Have them ``enter``, which takes them out of their lines, while anybody may. Where it
        says False of one, nobody behind that one may either."""
        heads = [(self._head(model).asked.turn, model) for model in self._lines]
        heapify(heads)  # turns are different, so that models are never compared
        while heads and may_enter():
            _, model = heappop(heads)
            if enter(self._head(model)) and model in self._lines:
                heappush(heads, (self._head(model).asked.turn, model))

    def _head(self, model: str | None) -> Waiting:
        return next(iter(self._lines[model]))
