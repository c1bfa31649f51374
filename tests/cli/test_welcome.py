"""``pointsman`` alone."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys

import pytest

from pointsman.cli.main import build_parser, main
from pointsman.cli.welcome import WELCOME


def commands() -> list[list[str]]:
    joined = WELCOME.replace("\\\n", " ")
    return [shlex.split(line) for line in re.findall(r"^    pointsman (.*)$", joined, re.MULTILINE)]


def test_without_a_word_it_says_where_to_begin_and_that_is_no_error(capsys):
    assert main([]) == 0
    captured = capsys.readouterr()
    assert captured.out == WELCOME
    assert captured.err == ""


def test_as_a_program_it_does_too():
    done = subprocess.run(
        [sys.executable, "-m", "pointsman"], capture_output=True, text=True, check=True
    )
    assert done.stdout == WELCOME


def test_it_is_short_and_fits_a_terminal():
    lines = WELCOME.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 88


@pytest.mark.parametrize("words", commands(), ids=lambda words: words[0])
def test_every_command_that_it_names_is_one(words):
    assert build_parser().parse_args(words).command == words[0]


def test_the_first_two_run_one_after_the_other(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert [main(words) for words in commands()[:2]] == [0, 0]
    assert "Take " in capsys.readouterr().out
