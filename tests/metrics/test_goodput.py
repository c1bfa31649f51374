"""Goodput out of all that was offered, and objectives in vLLM's words."""

from __future__ import annotations

import pytest
from numpy.testing import assert_array_equal

from pointsman import InputError
from pointsman.metrics.goodput import Objectives, goodput, met, objectives_of
from pointsman.metrics.latency import REJECTED
from tests.metrics.offered import FIVE, answers_of


def test_vllms_words_are_read_as_milliseconds():
    assert objectives_of(["ttft:3000", "tpot:60", "e2el:20000"]) == Objectives(3000, 60, 20000)
    assert objectives_of(["tpot:12.5"]) == Objectives(tpot_ms=12.5)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ttft3000"], "goodput 'ttft3000': expected NAME:MILLISECONDS, such as ttft:3000"),
        (["ttfd:3"], "goodput 'ttfd:3': objective 'ttfd' is unknown; .* did you mean ttft?"),
        (["e2e:3"], "objective 'e2e' is unknown; .* did you mean e2el?"),
        ([":3"], "goodput ':3': objective '' is unknown; expected one of e2el, tpot, ttft"),
        (["tpot:6", "tpot:7"], "goodput 'tpot:7': tpot is given twice"),
        (["tpot:6s"], "goodput 'tpot:6s': tpot is '6s'; expected a finite number of ms > 0"),
        (["tpot:"], "tpot is ''; expected a finite number of ms > 0"),
        (["tpot:0"], "tpot is 0.0; expected a finite number of ms > 0"),
        (["tpot:-1"], "tpot is -1.0; expected"),
        (["tpot:nan"], "tpot is nan; expected"),
        (["e2el:inf"], "e2el is inf; expected"),
        ([], "goodput: no objective; expected at least one, such as"),
    ],
)
def test_a_wrong_word_is_one_clear_error(words, message):
    with pytest.raises(InputError, match=message):
        objectives_of(words)


@pytest.mark.parametrize(
    ("objectives", "kept"),
    [
        (Objectives(), [True, True, True, False, False]),
        (Objectives(ttft_ms=80), [True, True, False, False, False]),  # just reached is kept
        (Objectives(ttft_ms=79.9), [True, False, False, False, False]),
        (Objectives(tpot_ms=10), [True, True, False, False, False]),  # one token: vacuously
        (Objectives(e2el_ms=85), [False, True, False, False, False]),
        (Objectives(ttft_ms=80, e2el_ms=85), [False, True, False, False, False]),
        (Objectives(ttft_ms=60, e2el_ms=85), [False, False, False, False, False]),
    ],
)
def test_all_objectives_must_hold_and_only_finished_requests_meet_them(objectives, kept):
    assert_array_equal(met(FIVE, objectives), kept)


def test_failed_and_rejected_requests_are_offered_and_not_met():
    assert goodput(FIVE, Objectives()).fraction == 3 / 5


def test_fraction_and_rate_have_the_same_numerator():
    """The window is from 100 to 1100 ms: two requests in one second."""
    figures = goodput(FIVE, Objectives(ttft_ms=100))
    assert (figures.met, figures.offered, figures.fraction) == (2, 5, 0.4)
    assert figures.requests_per_s == 2.0


def test_one_token_keeps_a_tpot_objective_and_is_counted_apart():
    assert goodput(FIVE, Objectives(tpot_ms=10)).vacuous_tpot == 1
    assert goodput(FIVE, Objectives(ttft_ms=60, tpot_ms=10)).vacuous_tpot == 0  # its TTFT is 80
    assert goodput(FIVE, Objectives(ttft_ms=80)).vacuous_tpot == 0  # nothing asked of TPOT


def test_a_service_that_refuses_everything_has_a_goodput_of_0():
    refused = answers_of((-1, REJECTED, 0.0, *[float("nan")] * 3, 9, 0, 0, 0))
    figures = goodput(refused, Objectives(ttft_ms=1))
    assert (figures.fraction, figures.requests_per_s) == (0.0, 0.0)


def test_nothing_offered_has_no_goodput_fraction():
    assert goodput(answers_of(), Objectives(ttft_ms=1)).fraction is None
