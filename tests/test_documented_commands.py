"""Every command that stands in a page is understood: its flags and choices are those of today."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest

from pointsman.cli.main import build_parser
from pointsman.core.errors import InputError
from tests.documentation import ROOT

PAGES = ("README.md", "README.zh-CN.md", *sorted(p.as_posix() for p in ROOT.glob("docs/**/*.md")))
ENDS = re.compile(r"\s{2,}(?=[^\s-])|\s\|\|?\s|\s>\s|\s&|;|\s#")  # a remark, or another command
HERE_DOCUMENT = re.compile(r"<<'(\w+)'.*?^\1$", re.MULTILINE | re.DOTALL)
NO_FILE = "no such file"  # of a configuration that the page tells the reader to write


def code_of(text: str) -> Iterator[str]:
    """The blocks that are for a shell, fenced or indented."""
    yield from re.findall(r"^```(?:sh|bash|shell)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    yield "\n".join(line[4:] for line in prose.splitlines() if line.startswith("    "))


def commands_of(text: str) -> Iterator[str]:
    for block in code_of(text):
        joined = re.sub(r"\\\n\s*", "", HERE_DOCUMENT.sub("", block))
        for line in map(str.strip, joined.splitlines()):
            if line.startswith("pointsman ") and " ... " not in line:
                yield ENDS.split(re.sub(r"\$\w+", "1", line))[0]


DOCUMENTED = sorted(
    {command for page in PAGES for command in commands_of((ROOT / page).read_text())}
)


def test_the_pages_have_commands():
    assert len(DOCUMENTED) > 80


@pytest.mark.parametrize("command", DOCUMENTED)
def test_a_documented_command_is_understood(command, capsys):
    assert refusal_of(command, capsys) is None


def refusal_of(command: str, capsys) -> str | None:
    try:
        build_parser().parse_args(shlex.split(command)[1:])
    except SystemExit as end:  # of --help and --version with 0
        return capsys.readouterr().err if end.code else None
    except InputError as error:
        return None if NO_FILE in str(error) else str(error)
    return None


def test_a_flag_that_there_is_no_more_would_be_found(capsys):
    assert "unknown flag --slackms" in refusal_of("pointsman compare a --slackms 5", capsys)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "```sh\npointsman compare a \\\n    --limit 1 | head\n```",
            ["pointsman compare a --limit 1"],
        ),
        ("    pointsman doctor     what is there\n", ["pointsman doctor"]),
        ("```text\npointsman doctor\n```\nand pointsman too", []),
        ("```sh\ncat <<'END'\npointsman no\nEND\npointsman yes && no\n```", ["pointsman yes"]),
    ],
)
def test_commands_are_found_in_what_is_for_a_shell(text, found):
    assert list(commands_of(text)) == found
