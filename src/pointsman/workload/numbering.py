"""Names and numbers of sessions, adapters and blocks: dense, in order of first appearance."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from pointsman.workload.workload import MISSING, Ints, Longs


class Numbering(dict[Hashable, int]):
    """Gives every new name the next integer; ``numbering[name]`` never fails."""

    def __missing__(self, name: Hashable) -> int:
        number = self[name] = len(self)
        return number


def texts(names: list[Hashable]) -> tuple[str, ...] | None:
    """What the numbers stand for; None where every number's name is the number itself."""
    count = len(names)
    if names == list(range(count)):
        return None
    shown = tuple(map(str, names))
    return None if shown == tuple(map(str, range(count))) else shown


def in_order_of_appearance(
    numbers: Ints, numbering: Numbering
) -> tuple[Ints, tuple[str, ...] | None]:
    """Numbers of a numbering made dense by first appearance, and their texts in that order."""
    names = list(numbering)
    appearances = first_appearances(numbers)
    if not np.array_equal(appearances, np.arange(len(names))):
        numbers = renumbered(numbers, appearances)
        names = [names[number] for number in appearances]
    return numbers, texts(names)


def first_appearances(numbers: Ints | Longs) -> Ints:
    """The distinct numbers >= 0 of an array, in order of first appearance."""
    if numbers.size == 0:
        return numbers.astype(np.int32)
    places = np.full(int(numbers.max()) + 1, -1, dtype=np.int64)
    # Where a number repeats, the last assignment stays: going backwards, the first place.
    backwards = numbers[::-1]
    place = np.arange(numbers.size - 1, -1, -1)
    if numbers.min() < 0:
        given = backwards >= 0
        backwards, place = backwards[given], place[given]
    places[backwards] = place
    used = np.flatnonzero(places >= 0)
    return used[np.argsort(places[used])].astype(np.int32)


def renumbered(numbers: Ints | Longs, appearances: Ints) -> Ints:
    """The array with each number replaced by its place in ``appearances``; -1 stays."""
    if appearances.size == 0:
        return numbers.astype(np.int32)
    places = np.full(int(appearances.max()) + 2, MISSING, dtype=np.int32)
    places[appearances] = np.arange(appearances.size, dtype=np.int32)
    # Index -1 is the last entry, which stays MISSING.
    return places[numbers]
