"""A comparison flags the policies under which a working set is beyond the caches."""

from __future__ import annotations

import json

import pytest

from pointsman import POLICIES
from pointsman.comparison.fleets import Trial, compare_on_fleet
from pointsman.costs.calibrated import read_calibrated
from pointsman.fleet.description import FleetDescription
from pointsman.fleet.groups import Group, Recorded
from pointsman.report.fleet_comparison import fleet_comparison_text
from pointsman.workload.reading import ReadOptions
from tests.fleet.cost_files import write_costs
from tests.small_fleets import asked

# Two prompts of two blocks and a token come together, now the one first and now the other. A
# replica has room for one.
A, B = (1, 2), (3, 4)
TWO = asked(*((100 * (k // 2), 9, 1, chain) for k, chain in enumerate((A, B, B, A) * 2)))


@pytest.fixture
def compared(tmp_path):
    path = write_costs(tmp_path / "costs.json", engine={"kv_blocks": 3, "block_size": 4})
    group = Group(count=2, hardware=Recorded("costs.json", read_calibrated(path)))
    policies = [POLICIES[name] for name in ("round_robin", "locality_aware")]
    return compare_on_fleet(TWO, policies, FleetDescription(groups=(group,)), Trial())


def test_a_policy_whose_working_set_is_beyond_the_cache_is_flagged(compared):
    """In turn each replica gets both prompts, and of each that comes again all but one of nine
    tokens is computed again: four times in eight."""
    (warning,) = compared.warnings
    assert "the KV cache is too small for what comes back to it: round_robin 44.4% of" in warning
    assert "locality_aware" not in warning


def test_the_documents_have_the_figure_and_the_warning(compared):
    document = json.loads(fleet_comparison_text(compared, ReadOptions(), "json"))
    fractions = {
        each["policy"]: each["metrics"]["recomputed_token_fraction"] for each in document["results"]
    }
    assert fractions == {"round_robin": pytest.approx(32 / 72), "locality_aware": 0.0}
    assert document["warnings"] == list(compared.warnings)
    assert "Warning: the KV cache is too small" in fleet_comparison_text(
        compared, ReadOptions(), "table"
    )
