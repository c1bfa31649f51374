"""What requests take before the engine, from those that are alone."""

from __future__ import annotations

import pytest

from pointsman.bench.prediction.overhead import overhead_ms
from tests.bench.prediction.made import row


def alone(number: int, tokens: int, fixed_ms: float = 5.0):
    """5 ms before the engine, an iteration of 2, 0.1 a token and 1e-4 a token squared; 2 a token
    after the first; a second between two requests."""
    sent_ms = 1000.0 * number
    first_ms = sent_ms + fixed_ms + 2.0 + 0.1 * tokens + 1e-4 * tokens**2
    return row(
        number,
        prompt_tokens=tokens,
        sent_ms=sent_ms,
        first_token_ms=first_ms,
        last_token_ms=first_ms + 20.0,
    )


def test_it_is_what_is_left_at_no_tokens_without_the_first_iteration():
    rows = [alone(k, 50 + 30 * k) for k in range(10)]
    assert overhead_ms(rows) == pytest.approx(5.0, rel=1e-6)


def test_cached_tokens_cost_no_prefill():
    rows = [alone(k, 50 + 30 * k) for k in range(10)]
    for each in list(rows):
        longer = {"prompt_tokens": each.prompt_tokens + 64, "cached_tokens": 64}
        rows[each.number] = row(
            each.number,
            **longer,
            sent_ms=each.sent_ms,
            first_token_ms=each.first_token_ms,
            last_token_ms=each.last_token_ms,
        )
    assert overhead_ms(rows) == pytest.approx(5.0, rel=1e-6)


def test_requests_that_met_others_say_nothing():
    rows = [alone(k, 50 + 30 * k) for k in range(10)]
    slow = row(10, sent_ms=0.0, first_token_ms=9000.0, last_token_ms=20_000.0)
    assert overhead_ms([*rows, slow]) == 0.0


def test_it_is_never_below_nothing():
    assert overhead_ms([alone(k, 50 + 30 * k, fixed_ms=-3.0) for k in range(10)]) == 0.0


def test_prompts_alike_in_length_do_not_tell():
    assert overhead_ms([alone(k, 100) for k in range(10)]) == 0.0


def test_where_the_engine_tells_its_prefill_it_is_what_is_beyond_that_in_the_median():
    beyond = [1.0, 2.0, 2.5, 3.0, 3.5, 4.0, 90.0, 100.0, 110.0]  # median 3.5
    rows = [
        row(
            number,
            prompt_tokens=100,  # all alike: nothing could be fitted
            sent_ms=1000.0 * number,
            first_token_ms=1000.0 * number + 40.0 + each,
            last_token_ms=1000.0 * number + 200.0 + each,
            engine_prefill_ms=40.0,
        )
        for number, each in enumerate(beyond)
    ]
    assert overhead_ms(rows) == pytest.approx(3.5)
