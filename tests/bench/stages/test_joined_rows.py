"""One request's stages: they add up to the time from intended arrival to last token."""

from __future__ import annotations

import pytest

from pointsman.bench.stages.routed import Routed, read_routed
from pointsman.bench.stages.rows import HandOffRule, joined_row, rule_of
from pointsman.core.errors import InputError
from pointsman.dispatch.record import FellBack, HandedOff, Prefilled
from tests.bench.stages.made import PAIRS, A, B, choice, head, outcome, pair_choice, row, written

NO_RULE = HandOffRule()
MEASURED = rule_of("llamacpp", None)
STAGES = (
    *("client_delay_ms", "router_ms", "queue_wait_ms", "prefill_ms"),
    *("handoff_ms", "decode_wait_ms", "decode_ms"),
)

# The prefill is answered 250 ms after the choice, 230 of them the engine's own; restored after 12.
PREFILLED = Prefilled(0, 1250.0, None, 230.0)
HANDED_OFF = HandedOff(0, 1262.0, 0, 100.0, 12.0, 2_500_000)


def stages(joined):
    return [getattr(joined, name) for name in STAGES]


def routed(tmp_path, first, *lines) -> Routed:
    return read_routed(written(tmp_path / "log", first, *lines))["g-0"]


def test_without_a_router_all_but_the_prefill_is_queue_wait():
    # 328 ms from the send to the first token, of which the prefill took 300.
    joined = joined_row(row(engine_prefill_ms=300.0), None, False, NO_RULE)
    assert stages(joined) == [2.0, None, 28.0, 300.0, None, None, 100.0]
    assert joined.scheduled_ms == 340.0 - 300.0


def test_behind_a_router_its_share_is_what_it_did_not_wait_for_the_engine(tmp_path):
    # The router saw 320 of the client's 328 ms between its choice and the first token.
    log = routed(tmp_path, head(), choice(), outcome(first_token_ms=1320.0))
    joined = joined_row(row(engine_prefill_ms=300.0), log, True, NO_RULE)
    assert stages(joined) == [2.0, 8.0, 20.0, 300.0, None, None, 100.0]
    assert joined.waited_ms == 5.0
    assert joined.scheduled_ms == 40.0


def test_of_a_pair_the_prefill_replica_has_queue_wait_and_prefill(tmp_path):
    lines = (pair_choice(), PREFILLED, HANDED_OFF, outcome(first_token_ms=1270.0))
    log = routed(tmp_path, PAIRS, *lines)
    client = row(first_token_ms=290.0, last_token_ms=390.0, engine_prefill_ms=3.0)
    joined = joined_row(client, log, True, MEASURED)
    assert stages(joined) == [2.0, 8.0, 20.0, 230.0, 12.0, 8.0, 100.0]
    assert sum(stages(joined)) == 390.0 - 10.0
    assert (joined.is_handed_off, joined.handoff_bytes) == (True, 2_500_000)
    assert (joined.prefill_replica, joined.replica) == (A, B)


def test_a_pair_whose_hand_off_was_given_up_waited_until_the_decode_replica_took_it(tmp_path):
    fell_back = FellBack(0, 1040.0, "prefill_lost", 100, True)
    log = routed(tmp_path, PAIRS, pair_choice(), fell_back, outcome(first_token_ms=1320.0))
    joined = joined_row(row(engine_prefill_ms=250.0), log, True, MEASURED)
    assert stages(joined) == [2.0, 8.0, 70.0, 250.0, None, None, 100.0]
    assert (joined.is_handed_off, joined.fell_back) == (False, "prefill_lost")


def test_an_engine_that_did_not_tell_its_prefill_leaves_both_unknown(tmp_path):
    lines = (pair_choice(), Prefilled(0, 1250.0, None), HANDED_OFF, outcome(first_token_ms=1270.0))
    client = row(first_token_ms=290.0)
    joined = joined_row(client, routed(tmp_path, PAIRS, *lines), True, MEASURED)
    assert (joined.queue_wait_ms, joined.prefill_ms, joined.handoff_ms) == (None, None, 12.0)


def test_what_the_first_token_leaves_is_no_measured_hand_off(tmp_path):
    """Of vLLM and SGLang the log has a time that the router reckons."""
    handed_off = HandedOff(0, 1300.0, 0, 100.0, 40.0, None)
    log = routed(tmp_path, PAIRS, pair_choice(), PREFILLED, handed_off, outcome())
    joined = joined_row(row(), log, True, rule_of("nixl", 1000.0))
    assert joined.is_handed_off
    assert (joined.handoff_ms, joined.handoff_bytes, joined.router_ms) == (None, None, 8.0)


def test_bytes_of_shared_storage_are_computed_of_the_prompt(tmp_path):
    handed_off = HandedOff(0, 1300.0, 0, 100.0, 40.0, None)
    log = routed(tmp_path, PAIRS, pair_choice(), PREFILLED, handed_off, outcome())
    joined = joined_row(row(), log, True, rule_of("shared_storage", 2048.0))
    assert (joined.handoff_ms, joined.handoff_bytes) == (None, 100 * 2048.0)


def test_no_stage_is_below_0():
    # The engine's clock says more than the client's.
    joined = joined_row(row(engine_prefill_ms=329.5), None, False, NO_RULE)
    assert (joined.queue_wait_ms, joined.prefill_ms) == (0.0, 328.0)


def test_a_first_token_that_the_router_saw_late_takes_nothing_from_its_share(tmp_path):
    log = routed(tmp_path, head(), choice(), outcome(first_token_ms=1331.0))
    joined = joined_row(row(engine_prefill_ms=300.0), log, True, NO_RULE)
    assert (joined.router_ms, joined.queue_wait_ms) == (0.0, 28.0)


def test_of_a_request_that_failed_there_is_what_the_log_says(tmp_path):
    log = routed(tmp_path, head(), choice(), outcome(first_token_ms=None, status="error"))
    joined = joined_row(row(status="error", replica=None), log, True, NO_RULE)
    assert stages(joined) == [None] * 7
    assert (joined.replica, joined.reason, joined.attempts) == (B, "next_in_turn", 1)


def test_a_request_that_is_in_no_line_of_the_log_has_no_share_of_it():
    joined = joined_row(row(engine_prefill_ms=300.0), None, True, NO_RULE)
    assert stages(joined) == [2.0, None, None, None, None, None, 100.0]


def test_of_several_tries_the_last_one_counts(tmp_path):
    first = (choice(), outcome(first_token_ms=None, status="retried"))
    again = choice(1, request_id="g-0", attempt=2, time_ms=1100.0, replica=0)
    last = outcome(1, request_id="g-0", first_token_ms=1320.0)
    log = routed(tmp_path, head(), *first, again, last)
    assert (log.replica, log.attempts, log.chosen_ms) == (A, 2, 1100.0)


def test_a_log_that_has_an_id_twice_is_refused(tmp_path):
    twice = (choice(), outcome(), choice(1, request_id="g-0"))
    with pytest.raises(InputError, match="request g-0 came twice; expected each id once"):
        routed(tmp_path, head(), *twice)
