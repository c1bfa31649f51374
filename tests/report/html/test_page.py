"""The page as a whole."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from pointsman.report.html.page import page_of
from pointsman.report.html.result import SIMULATED, AnswerTable, Column, Result, Run, Share

TABLE = AnswerTable("All", (Column("policy"), Column("hits", percent=True)), (("a", 0.123456789),))
RUN = Run(
    name="a",
    origin=SIMULATED,
    shares=(Share("0", "all", 3, 1.0), Share("1", "all", 1, 1.0)),
)
RESULT = Result(
    label="trace",
    kind="comparison",
    verdict="Take a.",
    tables=(TABLE,),
    basis=(("Requests", "4"), ("Seed", "0"), ("Interval", "none"), ("Origin", "simulated")),
    warnings=("the cache thrashes",),
    runs=(RUN,),
)
PAGE = page_of([RESULT])
VOID = {"meta"}


class Balance(HTMLParser):
    """Whether every element that is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_every_element_is_closed():
    parser = Balance()
    parser.feed(PAGE)
    assert parser.open == []


def test_the_answer_comes_first_then_what_it_rests_on_then_pictures_then_what_is_absent():
    words = ("Take a.", "What it rests on", "Do all replicas get the same work", "Not shown")
    places = [PAGE.index(each) for each in words]
    assert places == sorted(places)


def test_warnings_and_the_basis_are_on_the_page():
    assert "Warning: the cache thrashes." in PAGE
    for term, text in RESULT.basis:
        assert f"<dt>{term}</dt><dd>{text}</dd>" in PAGE


def test_many_warnings_stand_behind_their_number():
    many = Result(**{**fields_of(RESULT), "warnings": tuple(f"number {k}" for k in range(9))})
    page = page_of([many])
    assert ">9 warnings</summary>" in page
    assert "Warning: number 8." in page


def test_a_rounded_figure_keeps_every_digit_beside_it():
    assert '<data value="0.123456789">12.3%</data>' in PAGE


def test_a_page_refers_to_nothing_outside():
    assert not re.search(
        r"""(src|href)=["'](?!#)|url\(|@import|https?://(?!www\.w3\.org/2000/svg)""", PAGE
    )
    assert "default-src &#x27;none&#x27;" in PAGE


def test_names_are_text_wherever_they_stand():
    name = "</script><img src=x onerror=alert(1)>"
    hostile = page_of(
        [
            Result(
                label=name,
                kind=name,
                verdict=name,
                tables=(AnswerTable(name, (Column(name),), ((name,),)),),
                basis=((name, name),),
                warnings=(name,),
                runs=(Run(name=name, origin=SIMULATED, shares=RUN.shares),),
            )
        ]
    )
    assert "<img" not in hostile
    parser = Balance()
    parser.feed(hostile)
    assert any(name in text for text in parser.texts)


def test_several_results_have_an_answer_each_and_runs_say_whose_they_are():
    both = page_of([RESULT, Result(**{**fields_of(RESULT), "label": "other"})])
    assert both.count('<p class="verdict">') == 2
    assert "a (trace)" in both
    assert "a (other)" in both


def fields_of(result: Result) -> dict:
    return {name: getattr(result, name) for name in Result.__slots__}
