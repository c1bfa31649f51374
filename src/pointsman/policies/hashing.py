"""Rendezvous hashing: each key ranks the candidates by itself, with no state to share.

When a candidate comes or goes, only the keys that it wins or held move (D. Thaler, C. Ravishankar,
Using Name-Based Mappings to Increase Hit Rates, 1998). It does here what a ring of virtual nodes
does elsewhere: the next on the ring is the next in the key's own ranking.
"""

from __future__ import annotations

import numpy as np

from pointsman.core.compiled import inlined
from pointsman.policies.policy import CANDIDATE, Request, View


@inlined
def _mixed(state: np.uint64) -> np.uint64:
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@inlined
def rendezvous_weight(key: int, candidate: int) -> float:
    """The weight in [0, 1) that the key gives to the candidate of that number: two rounds of
    SplitMix64.

    Source: G. Steele, D. Lea, C. Flood, Fast Splittable Pseudorandom Number Generators, 2014.
    """
    step = np.uint64(0x9E3779B97F4A7C15)
    of_key = _mixed(np.uint64(key) + step)
    mixed = _mixed(of_key + step * np.uint64(candidate + 1))
    return float(mixed >> np.uint64(11)) * (1.0 / (1 << 53))


@inlined
def weight_of(request: Request, view: View, candidate: int) -> float:
    """The weight that the request's key gives to the column of the view."""
    return rendezvous_weight(request.key, int(view[CANDIDATE, candidate]))


@inlined
def owner_of(request: Request, view: View) -> int:
    """The candidate that the request's key gives the most weight."""
    best, most = 0, -1.0
    for i in range(view.shape[1]):
        weight = weight_of(request, view, i)
        if weight > most:
            best, most = i, weight
    return best
