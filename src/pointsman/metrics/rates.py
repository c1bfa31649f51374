"""Rates and shares of requests and tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointsman.workload.workload import Floats


def window_ms(arrival_ms: Floats, finish_ms: Floats) -> float:
    """From the first arrival to the last finish; 0.0 where nothing finished.

    ``finish_ms`` is NaN for what did not finish; whatever happens after the last finish is
    outside.
    """
    last_ms = np.fmax.reduce(finish_ms, initial=-np.inf)  # fmax passes NaN over
    return float(last_ms - arrival_ms.min()) if last_ms > -np.inf else 0.0


def per_second(count: int, window: float) -> float:
    """So many in a window of ms, as a rate; 0.0 where the window has no length."""
    return count * 1000.0 / window if window else 0.0


def prompt_fraction(tokens: NDArray[Any], prompt_tokens: NDArray[Any]) -> float:
    """The share of all prompt tokens that such tokens are; 0.0 where there are no prompt tokens."""
    prompts = int(prompt_tokens.sum(dtype=np.int64))
    return int(tokens.sum(dtype=np.int64)) / prompts if prompts else 0.0
