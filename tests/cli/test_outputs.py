"""What is written is neither another output nor an input: refused before the work, by every
command that writes files."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pointsman.cli import options
from pointsman.cli.main import build_parser, main

ROW = {"arrival_ms": 0, "service_ms": 5}
COMPARE = ("compare", "in.jsonl", "--replicas", "2")
PLAN = ("plan", "in.jsonl", "--model", "m", "--device", "d", "--gpus", "2", "--goodput", "ttft:9")
GENERATE = ("trace", "generate", "--requests", "9")


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder to work in, with what commands read."""
    monkeypatch.chdir(tmp_path)
    for name in ("in.jsonl", "a.json", "f.toml"):
        Path(name).write_text(json.dumps(ROW) + "\n")
    Path("link.jsonl").symlink_to("in.jsonl")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*COMPARE, "--output", "x", "--report", "x"), "--report is x, and so is --output"),
        ((*COMPARE, "--output", "x", "--timeline", "./x"), "--timeline is x, and so is --output"),
        ((*COMPARE, "--report", "x", "--timeline", "x"), "--timeline is x, and so is --report"),
        ((*PLAN, "--output", "x", "--report", "x"), "--report is x, and so is --output"),
        (("bench", "a.json", "--report", "x", "--timeline", "x"), "and so is --report"),
    ],
)
def test_one_file_for_two_outputs_is_refused(capsys, folder, words, message):
    assert main(words) == 2
    assert f"{message}; expected a file of its own" in capsys.readouterr().err
    assert not (folder / "x").exists()


@pytest.mark.parametrize(
    "words",
    [
        (*COMPARE, "--output", "in.jsonl"),
        (*COMPARE, "--report", "link.jsonl"),
        (*COMPARE, "--costs", "a.json", "--output", "a.json"),
        ("compare", "in.jsonl", "--fleet", "f.toml", "--timeline", "f.toml"),
        (*PLAN, "--replicate-with", "in.jsonl", "a.json", "--output", "a.json"),
        (*PLAN, "--resume", "new.json", "--output", "new.json"),
        ("report", "in.jsonl", "a.json", "--output", "a.json"),
        ("replay", "in.jsonl", "--output", "in.jsonl"),
        ("decide", "in.jsonl", "a.json", "--output", "a.json"),
        ("bench", "a.json", "--report", "a.json"),
        ("trace", "convert", "in.jsonl", "--output", "in.jsonl"),
        ("policies", "bench", "--trace", "in.jsonl", "--output", "in.jsonl"),
        (*GENERATE, "--arrivals-of", "in.jsonl", "--output", "in.jsonl"),
        (*GENERATE, "--lengths-of", "in.jsonl", "--output", "in.jsonl"),
    ],
)
def test_an_input_is_not_written_over(capsys, folder, words):
    assert main(words) == 2
    assert "and the command reads it; expected a file of its own" in capsys.readouterr().err
    for name in ("in.jsonl", "a.json", "f.toml"):
        assert json.loads((folder / name).read_text()) == ROW
    assert not (folder / "new.json").exists()


def test_what_throws_everything_away_takes_several_outputs(capsys, folder):
    assert main((*COMPARE, "--output", "/dev/null", "--timeline", "/dev/null")) == 0


def test_a_word_that_is_no_file_may_be_the_name_of_one(folder):
    words = ("compare", "-", "--fleet", "2", "--output", "2", "--report", "-")
    options.check_outputs(build_parser().parse_args(words))


def test_every_argument_that_may_name_a_file_is_known_to_the_check():
    named = ("FILE", "TRACE", "LOG", "FLEET", "RESULT", "EVIDENCE")
    words = {
        action.dest
        for parser in parsers(build_parser())
        for action in parser._actions
        if action.type is not Path and str(action.metavar or "").startswith(named)
    }
    assert words - {"config"} == set(options._WORDS)  # commands with a config write no result


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """It and all below it."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from parsers(each)
