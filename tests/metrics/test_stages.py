"""Mean stages: they are those of the columns, and add up to the mean E2E."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pointsman import POLICIES
from pointsman.metrics.latency import spread_of
from pointsman.metrics.stages import MeanStages, mean_stages
from pointsman.sim.batching import simulate_fleet
from pointsman.sim.outcome import answers_of
from tests.metrics.offered import FIVE, NAN
from tests.small_fleets import asked, split

TURNS = POLICIES["round_robin"]


def test_where_prefill_and_decode_are_apart_the_first_decode_step_is_no_prefill():
    """Prefill 10 + 8 = 18, base and transfer 5 + 16, the step that brings the first token 11, two
    decodes of 11: as worked out in tests/sim/test_handoff.py."""
    stages = mean_stages(answers_of(simulate_fleet(asked((0, 8, 3)), TURNS, split(1, 1))))
    assert stages == MeanStages(0.0, 18.0, 21.0, 11.0, 22.0)


def test_a_wait_for_a_seat_is_in_the_decode_wait():
    """The second of two comes at 23 as the first takes the only seat, until 72; its transfer of 16
    ends at 88, its first step of 11 at 99. Both prompts are computed at once, until 18."""
    requests = asked((0, 8, 3), (0, 8, 1))
    run = simulate_fleet(requests, TURNS, split(2, 1, max_num_seqs=1))
    stages = mean_stages(answers_of(run))
    assert (stages.prefill_ms, stages.handoff_ms) == (18.0, 21.0)
    assert stages.decode_wait_ms == (11.0 + 49.0 + 11.0) / 2


def test_they_add_up_to_the_mean_latency():
    rng = np.random.default_rng(6)
    arrivals = np.cumsum(rng.exponential(20.0, 200))
    requests = asked(*zip(arrivals, [9] * 200, [7] * 200, strict=True))
    answers = answers_of(simulate_fleet(requests, TURNS, split(2, 2, max_num_seqs=4)))
    stages = mean_stages(answers)
    parts = (stages.queue_wait_ms, stages.prefill_ms, stages.handoff_ms)
    total_ms = sum(parts) + stages.decode_wait_ms + stages.decode_ms
    assert total_ms == pytest.approx(spread_of(answers.e2e_ms).mean)


def test_without_a_hand_off_all_until_the_first_token_is_wait_and_prefill():
    stages = mean_stages(FIVE)
    waits_ms = (FIVE.scheduled_ms - FIVE.arrival_ms)[FIVE.finished]
    firsts_ms = (FIVE.first_token_ms - FIVE.scheduled_ms)[FIVE.finished]
    assert (stages.queue_wait_ms, stages.prefill_ms) == (waits_ms.mean(), firsts_ms.mean())
    assert (stages.handoff_ms, stages.decode_wait_ms) == (None, None)


@pytest.mark.parametrize("lacks", ["scheduled_ms", "first_token_ms"])
def test_where_a_finished_request_lacks_a_stage_nothing_is_said(lacks):
    """Means of different requests do not add up."""
    column = getattr(FIVE, lacks).copy()
    column[np.flatnonzero(FIVE.finished)[0]] = NAN
    assert mean_stages(replace(FIVE, **{lacks: column})) == MeanStages()
