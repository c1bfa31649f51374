"""What torchrun starts, once a rank: ``torchrun ... -m pointsman.bench.mechanism FLAGS``.

Rank 0 alone speaks and writes. The exit code is 0 or 1.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from pointsman.bench.mechanism.asked import SAYS, MechanismAsked, asked_by, check_is_new
from pointsman.bench.mechanism.ending import EXIT_FAILED, Ending, LastWords
from pointsman.bench.mechanism.outcome import RunFacts
from pointsman.bench.mechanism.ranks import (
    Place,
    Ranks,
    SquareProducts,
    Work,
    imported_torch,
    joined_ranks,
    measured,
    place_of,
    profile_of,
)
from pointsman.bench.mechanism.result import write_new
from pointsman.bench.mechanism.routing import STRATEGIES, Queues, queues_of
from pointsman.core.errors import PointsmanError
from pointsman.evidence.envelope import MechanismRun

MakeWork = Callable[[Any, Any, MechanismAsked], Work]  # of torch, the device and the run


def main(words: Sequence[str] | None = None, make_work: MakeWork = SquareProducts) -> int:
    """Run this rank; the exit code."""
    is_first = os.environ.get("RANK", "0") == "0"
    try:
        torch = imported_torch()
        place = place_of(os.environ)
        asked = asked_by(sys.argv[1:] if words is None else words)
        check_is_new(asked.output)
        facts = RunFacts(torch, asked, place.ranks, profile_of(torch, place.ranks))
    except PointsmanError as error:
        if is_first:
            _say(str(error))
        return EXIT_FAILED
    return _Rank(place, facts, make_work).run()


class _Rank:
    """One rank of a run that can begin."""

    def __init__(self, place: Place, facts: RunFacts, make_work: MakeWork) -> None:
        self._torch = facts.torch
        self._place = place
        self._facts = facts
        self._make_work = make_work
        self._ending = Ending(place.rank, self._write_failure)

    def run(self) -> int:
        """Measure, and on rank 0 write; what goes wrong ends the process."""
        self._ending.listen()
        try:
            result = self._result()
        except Exception as error:  # whatever torch, its backend or the device raises
            self._ending.fail(_reason(error))
        self._ending.claim()
        if result is None:
            return 0
        try:
            write_new(self._facts.asked.output, result)
        except PointsmanError as error:
            _say(str(error))
            return EXIT_FAILED
        _say(f"wrote {self._facts.asked.output}")
        return 0

    def _result(self) -> MechanismRun | None:
        """The file, on rank 0."""
        asked, ending, torch = self._facts.asked, self._ending, self._torch
        ranks = joined_ranks(torch, self._place, self._facts.profile, asked.timeout_s)
        ending.words = LastWords(torch, self._place)
        ending.stage = "routing"
        queues = self._routed(ranks)
        ending.stage = "measuring"
        if self._place.rank == 0:
            _say(
                f"{self._place.ranks} ranks by {ranks.group}; rounds of each strategy:"
                f" {asked.warmup} to warm up, {asked.repeats} that count"
            )
        work = self._make_work(torch, ranks.device, asked)
        rounds = measured(ranks, work, queues, asked)
        ending.stage = "gathering"
        everyone = ranks.gathered(rounds)
        torch.distributed.destroy_process_group()
        if self._place.rank != 0:
            return None
        return self._facts.succeeded(everyone)

    def _routed(self, ranks: Ranks) -> dict[str, Queues]:
        """Who gets what: rank 0 asks the policies, as a router does, and tells the others."""
        queues: list[dict[str, Queues] | None] = [None]
        if self._place.rank == 0:
            queues = [{name: queues_of(name, self._place.ranks) for name in STRATEGIES}]
        self._torch.distributed.broadcast_object_list(queues, src=0, device=ranks.device)
        return msgspec.convert(queues[0], dict[str, Queues])

    def _write_failure(self, stage: str, reason: str) -> None:
        output = self._facts.asked.output
        _say(f"mechanism: failed at {stage}: {reason}")
        try:
            write_new(output, self._facts.failed(stage, reason))
        except PointsmanError as error:
            _say(str(error))
        else:
            _say(f"wrote {output}, which says so")


def _reason(error: Exception) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0]}" if text else type(error).__name__


def _say(message: str) -> None:
    with contextlib.suppress(OSError):  # nobody listens any more, which is no reason to fail
        print(f"{SAYS}{message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
