"""What a run asked of a recorded engine, against what its costs were fitted to."""

from __future__ import annotations

import pytest

from pointsman import POLICIES, workload_of_columns
from pointsman.costs.calibrated import read_calibrated
from pointsman.fleet.asked import asked_of_groups, most_of, range_warnings
from pointsman.fleet.description import FleetDescription, Link
from pointsman.fleet.groups import Group, Recorded
from pointsman.sim.batching import simulate_fleet
from pointsman.sim.conditions import ClosedLoop, Conditions
from tests.fleet.cost_files import write_costs

# 20 + 10 ms of prefill; the second and third come meanwhile and run together.
THREE = workload_of_columns([0.0, 1.0, 2.0], prompt_tokens=[100, 60, 40], output_tokens=[1, 20, 10])


def asked(folder, replicas: int, conditions: Conditions | None = None, **changes):
    path = write_costs(folder / "costs.json", **changes)
    group = Group(count=replicas, hardware=Recorded("costs.json", read_calibrated(path)))
    fleet = FleetDescription(groups=(group,), conditions=conditions or Conditions())
    assembled = fleet.assembled(THREE)
    run = simulate_fleet(THREE, POLICIES["round_robin"], assembled, fleet.conditions)
    return fleet, asked_of_groups(run, fleet)


def test_the_most_at_once_on_one_replica_is_counted(tmp_path):
    """The first is alone until its only token; 60 + 20 and 40 + 10 tokens follow together."""
    _, (figures,) = asked(tmp_path, 1)
    assert (figures.batch, figures.kv_tokens) == (2, 130)
    assert (figures.prompt_tokens, figures.output_tokens) == (100, 20)
    assert figures.rate_rps == pytest.approx(2 / 0.002)


def test_replicas_share_the_rate_and_have_fewer_at_once(tmp_path):
    """In turn: the first and third on one replica, one after the other; the second alone."""
    _, (figures,) = asked(tmp_path, 2)
    assert (figures.batch, figures.kv_tokens) == (1, 101)
    assert figures.rate_rps == pytest.approx(1 / 0.002)


def test_a_closed_loop_has_no_rate_of_its_own(tmp_path):
    _, (figures,) = asked(tmp_path, 1, Conditions(closed_loop=ClosedLoop(2)))
    assert figures.rate_rps is None


def test_a_recording_of_two_cores_is_held_against_two_replicas(tmp_path):
    _, (figures,) = asked(tmp_path, 1, engine={"engine_cores": 2})
    assert (figures.batch, figures.kv_tokens) == (4, 260)


def test_what_is_beyond_the_range_is_said(tmp_path):
    limits = {"prompt_tokens": 99, "batch": 1}
    fleet, figures = asked(tmp_path, 1, limits=limits)
    assert range_warnings(fleet, figures) == (
        "costs.json: prompt_tokens is 100 and the costs were fitted up to 99 tokens",
        "costs.json: batch is 2 and the costs were fitted up to 1 requests at once",
    )
    inside, figures = asked(tmp_path, 1)
    assert range_warnings(inside, figures) == ()


def test_another_engine_model_is_said(tmp_path):
    fleet, figures = asked(tmp_path, 1, engine={"model": "vllm-v0"})
    assert range_warnings(fleet, figures) == (
        "costs.json: engine model is vllm-v1 and the costs were fitted to vllm-v0",
    )


@pytest.mark.parametrize(
    ("recorded", "serving", "said"),
    [
        ("0.19.0", "0.20.1", ["engine version is 0.20.1 and the costs were fitted to 0.19.0"]),
        (
            None,
            "0.19.0",
            ["engine version is 0.19.0 and the costs were fitted to one not recorded"],
        ),
        ("0.19.0", "0.19.0", []),
        ("0.19.0", "v0.19.0", []),
        ("0.19.0", None, []),
    ],
)
def test_costs_of_another_engine_version_than_will_serve_are_said(
    tmp_path, recorded, serving, said
):
    path = write_costs(tmp_path / "costs.json", engine={"version": recorded})
    hardware = Recorded("costs.json", read_calibrated(path), serving)
    fleet = FleetDescription(groups=(Group(count=1, hardware=hardware),))
    run = simulate_fleet(THREE, POLICIES["round_robin"], fleet.assembled(THREE))
    warnings = range_warnings(fleet, most_of([asked_of_groups(run, fleet)]))
    assert warnings == tuple(f"costs.json: {sentence}" for sentence in said)


def test_of_several_runs_the_most_counts(tmp_path):
    _, one = asked(tmp_path, 1)
    _, two = asked(tmp_path, 2)
    (most,) = most_of([two, one])
    assert (most.batch, most.kv_tokens) == (2, 130)


def test_a_prefill_replica_is_not_asked_for_the_decodes(tmp_path):
    path = write_costs(tmp_path / "costs.json")
    file = Recorded("costs.json", read_calibrated(path))
    groups = tuple(Group(count=1, hardware=file, role=role) for role in ("prefill", "decode"))
    link = Link(gb_per_s=1000, kv_bytes_per_token=1)
    fleet = FleetDescription(groups=groups, link=link)
    run = simulate_fleet(THREE, POLICIES["round_robin"], fleet.assembled(THREE))
    prefill, decode = asked_of_groups(run, fleet)
    assert prefill.rate_rps == decode.rate_rps == pytest.approx(2 / 0.002)
    assert decode.batch == 2
