"""Charts of small runs, character by character."""

from __future__ import annotations

import numpy as np
import pytest

from pointsman import POLICIES, FifoFleet, InputError, simulate, workload_of_columns
from pointsman.report.gantt import gantt_text
from pointsman.report.timeline.simulated import story_of_fleet, story_of_single
from pointsman.sim.batching import simulate_fleet
from pointsman.workload.workload import Names
from tests.report.timeline.test_trace_file import FOUR
from tests.small_fleets import alike, asked, split

TURNS = POLICIES["round_robin"]


def single(policy: str = "round_robin", workload=FOUR, replicas: int = 2):
    return story_of_single(simulate(workload, POLICIES[policy], FifoFleet(replicas)))


def test_the_lessons_four_requests_are_drawn_to_scale():
    """In turns; a hit takes 30 % less: 20 to 25.6 and 9 to 13.2 ms, a character a ms begun."""
    assert gantt_text([single()]) == (
        ". queued   # served\n"
        "a character is 1 ms; ms since the first arrival\n"
        "\n"
        "round_robin\n"
        "replica request wait ms total 0         10        20        30        40\n"
        "0       r0            0    20 ####################\n"
        "0       r2           18  23.6   ..................######\n"
        "1       r1            0     8  ########\n"
        "1       r3            6  10.2    ......#####\n"
    )


def test_all_charts_have_one_axis():
    text = gantt_text([single("queue_aware"), single()])
    first, second = (line for line in text.splitlines() if line.startswith("replica"))
    assert first == second


def test_a_hand_off_has_its_own_character():
    """Prefill to 18, the KV is there at 39, the first token comes at 50, the last at 72."""
    run = simulate_fleet(asked((0, 8, 3)), TURNS, split(1, 1))
    text = gantt_text([story_of_fleet(run)])
    assert "a character is 2 ms" in text
    assert text.splitlines()[-1] == "0>1     0             0    72 " + "=" * 9 + ">" * 10 + "#" * 17


def test_who_gets_no_replica_has_a_word_in_place_of_a_chart():
    run = simulate_fleet(asked((0, 500, 1)), TURNS, alike(1))
    assert gantt_text([story_of_fleet(run)]).splitlines()[-1].endswith("rejected: can never fit")


@pytest.mark.parametrize("scale", [1e-3, 1.0, 977.0, 1e7])
def test_any_scale_fits_80_plain_columns(scale):
    services = np.array([3.0, 1.0, 0.5, 8.0, 2.0]) * scale
    workload = workload_of_columns(np.arange(5) * scale, service_ms=services)
    text = gantt_text([single(workload=workload)])
    assert max(map(len, text.splitlines())) <= 80
    assert text.isascii()
    assert "\x1b" not in text


def test_every_request_has_a_line_and_a_mark():
    """The shortest one takes a thousandth of a character's time."""
    workload = workload_of_columns([0.0] * 40, service_ms=[0.001] + [40.0] * 39)
    lines = gantt_text([single(workload=workload, replicas=1)]).splitlines()[5:]
    assert len(lines) == 40
    assert all("#" in line or "." in line for line in lines)


def test_more_requests_than_a_screen_holds_are_refused():
    many = workload_of_columns([0.0] * 41, service_ms=[1.0] * 41)
    with pytest.raises(InputError, match=r"41 requests; expected at most 40, as with --limit 40"):
        gantt_text([single(workload=many)])


def test_no_requests_are_an_empty_chart():
    empty = workload_of_columns([], service_ms=[])
    assert gantt_text([single(workload=empty)]).splitlines()[-1].startswith("replica request")


def test_figures_of_the_axis_stand_at_their_times_and_touch_no_other():
    """A character is 1e13 ms; 15 characters of a figure reach into the place of the next one."""
    workload = workload_of_columns(np.arange(5) * 1e14, service_ms=[6.0] * 5)
    head, chart = gantt_text([single(workload=workload)]).splitlines()[4:6]
    begin = chart.index("#")
    assert head[begin:].split() == ["0", "100,000,000,000", "300,000,000,000"]
    assert head.index("100,000,000,000") - begin == 10
    assert head.index("300,000,000,000") - begin == 30


def test_a_wide_name_is_cut_to_the_columns_that_a_narrow_one_has():
    """Five characters of two columns each, and two dots."""
    workload = workload_of_columns(
        [0.0], service_ms=[6.0], names=Names(requests=("\u8acb\u6c42" * 6,))
    )
    line = gantt_text([single(workload=workload)]).splitlines()[-1]
    assert line.split()[1] == "\u8acb\u6c42" * 2 + "\u8acb.."
