"""How much is held at the same time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pointsman.workload.workload import Floats


def most_at_once(begin_ms: Floats, end_ms: Floats, amounts: NDArray[Any]) -> int:
    """The most that is held at once, each row its amount from begin to end; 0 without rows.

    What ends at an instant is gone before another begins.
    """
    at_ms = np.concatenate((end_ms, begin_ms))
    changes = np.concatenate((-amounts, amounts))
    return int(np.cumsum(changes[np.argsort(at_ms, kind="stable")]).max(initial=0))
