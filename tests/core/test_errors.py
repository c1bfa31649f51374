"""What messages look like."""

from __future__ import annotations

from pointsman.core.errors import InputError, MachineError, unknown_name, wrong_value


def test_a_wrong_value_says_where_what_and_what_was_wanted():
    error = wrong_value("trace.jsonl line 17", "output_tokens", -4, "an integer >= 0")
    assert str(error) == "trace.jsonl line 17: output_tokens is -4; expected an integer >= 0"
    assert error.exit_code == 2


def test_an_unknown_name_offers_the_nearest_known_one():
    error = unknown_name("flags", "policy", "round_robbin", ("queue_aware", "round_robin"))
    assert "expected one of queue_aware, round_robin; did you mean round_robin?" in str(error)


def test_the_nearest_name_stands_before_a_list_of_many_lines():
    policies = [f"policy_number_{number}" for number in range(20)]
    error = unknown_name("flags", "policy", "policy_numbr_7", policies)
    assert "is unknown; did you mean policy_number_7?; expected one of policy_" in str(error)


def test_a_long_value_is_cut():
    assert len(str(wrong_value("here", "id", "x" * 10_000, "a short string"))) < 200


def test_input_errors_are_value_errors_and_machine_errors_are_os_errors():
    assert issubclass(InputError, ValueError)
    assert issubclass(MachineError, OSError)
