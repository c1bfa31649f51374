"""Text in markup."""

from __future__ import annotations

from pointsman.report.html.markup import escaped, joined, tag


def test_text_is_escaped_and_markup_is_not_escaped_again():
    inner = tag("b", None, "1 < 2 & 3")
    assert tag("p", {"title": 'say "hi"'}, inner) == (
        '<p title="say &quot;hi&quot;"><b>1 &lt; 2 &amp; 3</b></p>'
    )


def test_control_characters_are_shown_by_their_code():
    assert escaped("a\x1b[31m\x00") == "a\\x1b[31m\\x00"


def test_parts_stand_behind_one_another():
    assert joined(("<", tag("i"), ">")) == "&lt;<i></i>&gt;"
