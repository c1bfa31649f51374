"""Named streams of random numbers from one seed.

Each use draws from a stream of its own, so that a change to one distribution leaves the draws of
all others as they were. Source of the idea: inference-sim/inference-sim ``sim/rng.go``.
"""

from __future__ import annotations

import hashlib

import numpy as np

from pointsman.core.errors import wrong_value


def stream(seed: int, name: str) -> np.random.Generator:
    """The stream of that name: the same numbers for the same (seed, name), on every machine.

    ``seed`` is an integer >= 0.
    """
    if seed < 0:
        raise wrong_value("generator", "seed", seed, "an integer >= 0")
    word = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, word))))
