"""Cost constants from a file, each checked."""

from __future__ import annotations

import pytest

from pointsman.core.errors import InputError
from pointsman.costs.files import checked_costs, read_costs
from tests.fleet.cost_files import write_costs


def test_absent_keys_keep_their_defaults(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text("tp_degree = 2\n")
    costs = read_costs(file)
    assert (costs.tp_degree, costs.pp_stages, costs.prefill_ms_per_token) == (2, 1, 0.05)


def test_the_costs_of_a_recorded_engine_are_pointed_to_the_fleet_that_they_are_for(tmp_path):
    path = write_costs(tmp_path / "costs.json")
    wanted = rf"recorded engine \(pointsman.costs/1\).*compare --fleet N --costs {path}"
    with pytest.raises(InputError, match=wanted):
        read_costs(path)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"serving_mode": "pd_disagregated"},
            "serving_mode 'pd_disagregated' is unknown; expected one of pd_disaggregated,"
            " replica; did you mean pd_disaggregated?",
        ),
        ({"serving_mode": 3}, "serving_mode is 3; expected one of replica, pd_disaggregated"),
        ({"tp_degree": 0}, "tp_degree is 0; expected an integer >= 1"),
        ({"tp_degree": 1.5}, "tp_degree is 1.5; expected an integer >= 1"),
        ({"pp_stages": -2}, "pp_stages is -2; expected an integer >= 1"),
        ({"pp_stages": True}, "pp_stages is True; expected an integer >= 1"),
        ({"decode_ms_per_token": float("nan")}, "expected a finite number >= 0"),
        ({"decode_ms_per_token": 10**400}, "expected a finite number >= 0"),
        ({"decode_ms_per_token": "1"}, "decode_ms_per_token is '1'; expected a finite number"),
    ],
)
def test_a_bad_value_is_named_with_what_was_wanted(values, message):
    with pytest.raises(InputError) as caught:
        checked_costs(values, "c.json")
    assert str(caught.value).startswith("c.json: ")
    assert message in str(caught.value)
