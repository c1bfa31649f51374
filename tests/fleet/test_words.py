"""A fleet in one word."""

from __future__ import annotations

import pytest

from pointsman import InputError
from pointsman.fleet.words import groups_of_words, names_a_file


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("4", [{"count": 4}]),
        ("4xh100", [{"count": 4, "device": "h100"}]),
        ("2xrtx-4090:tp=2", [{"count": 2, "device": "rtx-4090", "tp": 2}]),
        (
            "2xh100:prefill+3xa100-80:pp=2:decode",
            [
                {"count": 2, "device": "h100", "role": "prefill"},
                {"count": 3, "device": "a100-80", "pp": 2, "role": "decode"},
            ],
        ),
    ],
)
def test_a_word_becomes_groups(text, groups):
    assert groups_of_words(text) == groups


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("h100", "'h100' is no group of replicas; expected such as 4xh100"),
        ("", "'' is no group"),
        ("4x", "'4x' is no group"),
        ("-4xh100", "'-4xh100' is no group"),
        ("4xh100+", "'' is no group"),
        ("9" * 5000, "is no group"),
        ("4xh100:tp", "tp is ''; expected an integer >= 1, as in tp=2"),
        ("4xh100:tp=two", "tp is 'two'"),
        ("4xh100:prefil", "setting 'prefil' is unknown; .*; did you mean prefill?"),
        ("4xh100:tp=2:tp=4", "tp is given twice"),
        ("4xh100:prefill:decode", "role is given twice"),
    ],
)
def test_another_word_is_refused(text, message):
    with pytest.raises(InputError, match=message):
        groups_of_words(text)


@pytest.mark.parametrize(
    "text", ["fleet.toml", "2xh100.toml", "fleet.tml", "sub/fleet", "../4xh100"]
)
def test_what_has_a_slash_or_a_suffix_is_a_file(text):
    assert names_a_file(text)


@pytest.mark.parametrize(
    "text", ["4xh100", "4", "4xcard.v2", "4.5", "1xh100+2xcard.b:tp=2", "h100", ""]
)
def test_what_begins_with_replicas_or_has_neither_is_none(text):
    assert not names_a_file(text)
