"""When two workloads are the same."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from pointsman.workload.workload import Workload


def assert_equal(left: Workload, right: Workload) -> None:
    for field in fields(Workload):
        if field.name == "source":
            continue
        one, other = getattr(left, field.name), getattr(right, field.name)
        if isinstance(one, np.ndarray):
            np.testing.assert_array_equal(one, other, err_msg=field.name)
        else:
            assert one == other, field.name
