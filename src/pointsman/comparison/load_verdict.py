"""Our rule against the best of the others', cell by cell: wins, ties and losses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pointsman.comparison.load_bench import SUBJECT, TAIL_REFERENCE, CellResult
from pointsman.policies.catalogue import PEERS

TIE_RATIO = 1.02  # loads closer than this are not told apart by one trace
WIN, TIE, LOSS = "win", "tie", "loss"


@dataclass(frozen=True, slots=True)
class Standing:
    """How ``SUBJECT`` stands in one cell.

    ``load_ratio``: what it holds over what the best peer holds; None where that holds nothing.
    ``worst_ttft_ratio``: its worst TTFT over that of ``TAIL_REFERENCE``, both at the load that the
    latter holds.
    """

    cell: CellResult
    best_peer: str
    load_ratio: float | None
    verdict: str
    worst_ttft_ratio: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """All standings together; the mean is over the cells that have a ratio."""

    wins: int
    ties: int
    losses: int
    geometric_mean_ratio: float | None
    worst: Standing | None
    geometric_mean_worst_ttft_ratio: float | None


def best_peer(cell: CellResult) -> str | None:
    """Of the others' rules at their defaults the one that holds most, the first among equals."""
    peers = [name for name in cell.held if name in PEERS]
    return max(peers, key=lambda name: cell.held[name].load_ratio, default=None)


def standing(cell: CellResult, tolerance_ratio: float) -> Standing | None:
    """None where ``SUBJECT`` or every peer is missing.

    A tie: closer than ``TIE_RATIO``, or than the loads were told apart at all.
    """
    peer = best_peer(cell)
    if SUBJECT not in cell.held or peer is None:
        return None
    ours, theirs = cell.held[SUBJECT].load_ratio, cell.held[peer].load_ratio
    return Standing(
        cell=cell,
        best_peer=peer,
        load_ratio=ours / theirs if theirs else None,
        verdict=verdict(ours, theirs, tolerance_ratio),
        worst_ttft_ratio=_worst_ttft_ratio(cell),
    )


def verdict(ours: float, theirs: float, tolerance_ratio: float) -> str:
    """Win, tie or loss of one load against another."""
    # A step of the grid is a tie, and comes out a little over its ratio in doubles.
    tie_ratio = max(TIE_RATIO, tolerance_ratio * (1 + 1e-9))
    if ours == theirs or max(ours, theirs) <= tie_ratio * min(ours, theirs):
        return TIE
    return WIN if ours > theirs else LOSS


def _worst_ttft_ratio(cell: CellResult) -> float | None:
    reference = cell.held.get(TAIL_REFERENCE)
    if cell.tail is None or reference is None or reference.at is None:
        return None
    ours, theirs = cell.tail.worst_ttft_ms, reference.at.worst_ttft_ms
    return ours / theirs if ours is not None and theirs else None


def summary(standings: Sequence[Standing]) -> Summary:
    """Count the verdicts, and take the means of the ratios."""
    verdicts = [each.verdict for each in standings]
    with_ratio = [each for each in standings if each.load_ratio is not None]
    return Summary(
        wins=verdicts.count(WIN),
        ties=verdicts.count(TIE),
        losses=verdicts.count(LOSS),
        geometric_mean_ratio=_geometric_mean([each.load_ratio for each in standings]),
        worst=min(with_ratio, key=lambda each: each.load_ratio or 0.0, default=None),
        geometric_mean_worst_ttft_ratio=_geometric_mean(
            [each.worst_ttft_ratio for each in standings]
        ),
    )


def _geometric_mean(ratios: Sequence[float | None]) -> float | None:
    known = [ratio for ratio in ratios if ratio is not None]
    if not known:
        return None
    if min(known) == 0.0:
        return 0.0
    return math.exp(math.fsum(map(math.log, known)) / len(known))
