"""How often each reason decided, over time."""

from __future__ import annotations

import numpy as np

from pointsman.metrics.reasons import MOST_STEPS, reasons_over_time


def counted(arrival_ms, reason):
    return reasons_over_time(np.array(arrival_ms), np.array(reason, dtype=np.int8), ("home", "new"))


def test_choices_are_counted_in_the_second_in_which_they_came():
    over = counted([0.0, 999.0, 1000.0, 2500.0], [0, 0, 1, 0])
    assert over.step_ms == 1000
    assert over.counts == {"home": (2, 0, 1), "new": (0, 1, 0)}


def test_a_long_run_has_wider_steps_and_loses_no_choice():
    over = counted(np.linspace(0.0, 3_600_000.0, 1000), [0] * 999 + [1])
    assert over.step_ms == 60_000  # an hour in sixty steps
    assert len(over.counts["home"]) == MOST_STEPS
    assert (sum(over.counts["home"]), sum(over.counts["new"])) == (999, 1)


def test_a_run_without_requests_has_one_empty_step():
    assert counted([], []).counts == {"home": (0,), "new": (0,)}
