"""The pages that teach: their commands run in a clean clone and print what the pages show."""

from __future__ import annotations

import contextlib
import re

import pytest

from tests.documentation import (
    ROOT,
    Served,
    assert_shown,
    blocks,
    clean_clone,
    fake_replicas,
    python,
    shell,
)

ENGLISH, CHINESE = (ROOT / "docs/tutorial" / language for language in ("en", "zh"))
# In reading order, for a page uses what the ones before it wrote.
PAGES = ("index.md", *sorted(page.name for page in ENGLISH.glob("[0-9]*.md")))
LESSONS = PAGES[1:]


@pytest.fixture
def clone(tmp_path):
    return clean_clone(tmp_path / "pointsman")


def run_page(document, clone):
    with fake_replicas(), contextlib.ExitStack() as running:
        printed = ""
        for language, text in blocks(document):
            if language == "sh" and text.startswith("pointsman serve"):
                running.callback(Served(text, clone).stop)
            elif language == "sh":
                if text.startswith("pointsman replay"):
                    running.close()  # as the page says: Ctrl-C, then its log
                printed = shell(text, clone)
            elif language == "python":
                printed = python(text, clone)
            elif language == "text":
                assert_shown(text, printed)


def prose(page):
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def figures(text):
    return set(re.findall(r"\d+(?:,\d{3})*\.\d+|\d+(?:,\d{3})+", text))


@pytest.mark.readme
def test_every_command_of_the_tutorial_prints_what_the_page_shows(clone):
    for page in PAGES:
        run_page(f"docs/tutorial/en/{page}", clone)
    assert shell("git status --porcelain", clone) == ""


@pytest.mark.readme
@pytest.mark.parametrize("page", ["quick-start", "first-policy", "timeline", "formats", "plan"])
def test_every_command_of_a_page_prints_what_it_shows_and_leaves_the_clone_as_it_is(clone, page):
    run_page(f"docs/{page}.md", clone)
    assert shell("git status --porcelain", clone) == ""


def test_the_chinese_tutorial_has_the_pages_of_the_english_one():
    assert sorted(page.name for page in CHINESE.iterdir()) == sorted(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_both_languages_of_a_page_have_the_same_blocks(page):
    ours, theirs = (blocks(f"docs/tutorial/{language}/{page}") for language in ("en", "zh"))
    assert ours == theirs


@pytest.mark.parametrize("page", PAGES)
def test_both_languages_of_a_page_have_the_same_figures(page):
    assert figures(prose(CHINESE / page)) == figures(prose(ENGLISH / page))


@pytest.mark.parametrize("folder", [ENGLISH, CHINESE])
@pytest.mark.parametrize("page", LESSONS)
def test_a_lesson_has_an_experiment_and_a_question_whose_answers_are_folded_away(folder, page):
    text = (folder / page).read_text()
    assert text.count("<details") == text.count("</details>") == 2
    assert text.count("<summary>") == 2


@pytest.mark.parametrize("excerpt", ["b\nc\n", "a\n...\nd\n", "...\nd\n"])
def test_an_excerpt_is_shown_where_its_lines_were_printed(excerpt):
    assert_shown(excerpt, "a\nb\nc\nd\n")


@pytest.mark.parametrize("excerpt", ["a\nc\n", "c\n...\na\n", "b \n", "d\n...\nd\n"])
def test_lines_that_were_not_printed_so_are_no_excerpt(excerpt):
    with pytest.raises(AssertionError, match="not printed"):
        assert_shown(excerpt, "a\nb\nc\nd\n")
