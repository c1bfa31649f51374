"""The draws that policies get: a function of (seed, sequence), the same for every driver."""

from __future__ import annotations

import numpy as np
from numba import types

from pointsman.core.compiled import inlined, kernel


@inlined
def uniform_draw(seed: int, sequence: int) -> float:
    """The draw of one request, in [0, 1): SplitMix64 of (seed, sequence).

    Source: G. Steele, D. Lea, C. Flood, Fast Splittable Pseudorandom Number Generators, 2014.
    """
    step = np.uint64(0x9E3779B97F4A7C15)
    state = (np.uint64(seed) * np.uint64(0xD1342543DE82EF95)) + step * np.uint64(sequence + 1)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    state ^= state >> np.uint64(31)
    return float(state >> np.uint64(11)) * (1.0 / (1 << 53))


@kernel(types.float64(types.int64, types.int64))
def draw(seed: int, sequence: int) -> float:
    """``uniform_draw``, to be called from Python."""
    return uniform_draw(seed, sequence)
