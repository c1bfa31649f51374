"""Completion, asked of the shells themselves."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pointsman.cli.completion import SHELLS
from pointsman.cli.completion_words import command_tree
from pointsman.cli.main import COMMANDS, build_parser, main
from pointsman.policies.catalogue import POLICIES

# What is asked of every shell: the line so far, and what it has to offer among other things.
OFFERED = [
    ("pointsman comp", {"compare", "completion"}),
    ("pointsman trace ", {"info", "convert", "generate"}),
    ("pointsman compare --time", {"--time-unit", "--timeline"}),
    ("pointsman compare x.jsonl --format ", {"table", "json", "csv"}),
    ("pointsman compare x.jsonl --format j", {"json"}),
    ("pointsman trace generate --zipf", {"--zipf-exponent"}),
    ("pointsman compare --policy locality_", {"locality_aware", "locality_auto"}),
    ("pointsman completion z", {"zsh"}),
    ("pointsman plan --device h1", {"h100", "h100-sxm"}),
    ("pointsman compare --fleet 4xh1", {"4xh100", "4xh100-sxm"}),
    ("pointsman compare --fleet fleet", {"fleet.toml"}),
    ("pointsman compare here", {"here.jsonl"}),
    ("pointsman compare --output here", {"here.jsonl"}),
]

# And what it must not: a number has no words, a flag of another command is none of this one.
NOT_OFFERED = [
    ("pointsman compare --seed ", {"compare", "--seed", "here.jsonl", "table"}),
    ("pointsman trace info --zipf", {"--zipf-exponent"}),
    ("pointsman compare ", {"compare", "plan"}),
    ("pointsman compare -- --pol", {"--policy"}),
    ("pointsman compare -- --policy ", {"round_robin"}),
    ("pointsman compare --policy locality_", {"locality_aware:slack_ms="}),
    ("pointsman compare --fleet ", {".git", "here.jsonl"}),
]

_BASH = """
source "$1"
COMP_LINE=$2 COMP_POINT=${#2}
COMP_WORDS=($2)
[[ $2 == *" " ]] && COMP_WORDS+=("")
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_pointsman
printf "%s\\n" "${COMPREPLY[@]}"
"""

# The shell's own machinery stands outside; what is offered to it is printed.
_ZSH = """
compdef() { : }
compset() { : }
compadd() { shift; print -l -- "$@" }
_files() { if [[ $1 == -g ]]; then print -l -- ${~2}(N); else print -l -- *(N); fi }
source "$1"
words=(${=2})
[[ $2 == *" " ]] && words+=("")
CURRENT=${#words}
_pointsman
"""

_FISH = 'source $argv[1]; complete -C "$argv[2]"'


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """The scripts, and a file that can be named."""
    folder = tmp_path_factory.mktemp("scripts")
    for shell in SHELLS:
        (folder / shell).write_text(printed(shell))
    (folder / "here.jsonl").write_text("")
    (folder / "fleet.toml").write_text("")
    (folder / ".git").mkdir()
    return folder


def printed(shell: str) -> str:
    from pointsman.cli.completion import _known_names
    from pointsman.cli.completion_scripts import script_for

    return script_for(shell, command_tree(build_parser(), _known_names()))


def offered(shell: str, folder: Path, line: str) -> set[str]:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    command = {
        "bash": [program, "--norc", "-c", _BASH, "bash"],
        "zsh": [program, "-f", "-c", _ZSH, "zsh"],
        "fish": [program, "--no-config", "-c", _FISH],
    }[shell]
    done = subprocess.run(
        [*command, f"./{shell}", line], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    words = [each.partition("\t")[0] for each in done.stdout.splitlines() if each]
    last = line.rpartition(" ")[2]
    return {word for word in words if word.startswith(last)}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("line", "words"), OFFERED)
def test_a_shell_offers_what_can_stand_there(shell, folder, line, words):
    assert words <= offered(shell, folder, line)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("line", "words"), NOT_OFFERED)
def test_a_shell_offers_nothing_that_cannot(shell, folder, line, words):
    assert not words & offered(shell, folder, line)


def test_bash_completes_a_value_behind_an_equals_sign(folder):
    """Which is a word of its own to bash."""
    assert offered("bash", folder, "pointsman compare --format = j") == {"json"}
    assert "table" in offered("bash", folder, "pointsman compare --format = ")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("pointsman compare --policy locality_aware : sl", {"slack_ms="}),
        ("pointsman compare --policy = locality_aware : sl", {"slack_ms="}),
        ("pointsman compare --policy = locality_awa", {"locality_aware"}),
        ("pointsman compare --fleet 4xh100 : t", {"tp="}),
        ("pointsman compare --fleet = 2xh100 : pre", {"prefill"}),
    ],
)
def test_bash_completes_behind_a_colon_which_is_a_word_of_its_own_too(folder, line, words):
    assert offered("bash", folder, line) == words


def test_bash_completes_a_flag_and_its_value_where_they_are_not_cut(folder):
    """As with a COMP_WORDBREAKS of a user's own."""
    assert offered("bash", folder, "pointsman compare --format=j") == {"--format=json"}
    line = "pointsman compare --policy=locality_aware:sl"
    assert offered("bash", folder, line) == {"--policy=locality_aware:slack_ms="}


def test_bash_takes_names_of_files_with_blanks_whole(folder):
    (folder / "with a blank.jsonl").write_text("")
    assert "with a blank.jsonl" in offered("bash", folder, "pointsman compare with")


def test_an_interactive_bash_has_it_for_the_command(folder):
    program = shutil.which("bash")
    done = subprocess.run(
        [program, "--norc", "-c", "source ./bash; complete -p pointsman"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "complete -F _pointsman pointsman\n"


Arms = dict[str, set[str]]  # by the commands that stand before, such as /trace/info


@dataclass(frozen=True)
class Words:
    """What stands in a script, or has to: flags, commands below, and what flags take."""

    flags: Arms = field(default_factory=dict)
    below: Arms = field(default_factory=dict)
    values: Arms = field(default_factory=dict)  # by path and flag: "/trace/info --format"

    def add(self, arms: Arms, key: str, words: Iterable[str]) -> None:
        arms.setdefault(key, set()).update(words)


def words_of_the_parser(parser: argparse.ArgumentParser, path: str = "") -> Words:
    """Read off argparse itself; of a flag's values those that are choices."""
    found = Words()
    actions = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    found.add(found.flags, path, (name for action in actions for name in action.option_strings))
    for action in actions:
        if isinstance(action, argparse._SubParsersAction):
            found.add(found.below, path, action.choices)
            for name, child in action.choices.items():
                below = words_of_the_parser(child, f"{path}/{name}")
                for arms in ("flags", "below", "values"):
                    getattr(found, arms).update(getattr(below, arms))
        elif action.choices is not None:
            for name in action.option_strings:
                found.add(found.values, f"{path} {name}", map(str, action.choices))
    return found


def words_of_arms(script: str) -> Words:
    """The three questions of a bash or zsh script."""
    found = Words()
    (values,) = re.findall(r'case "\$at \$before" in\n(.*?)\n +esac', script, re.DOTALL)
    flags, arguments = re.findall(r'case "\$at" in\n(.*?)\n +esac', script, re.DOTALL)
    for block, arms in ((values, found.values), (flags, found.flags), (arguments, found.below)):
        for line in block.splitlines():
            patterns, words = re.fullmatch(r" +(.*)\) found=(.*) ;;", line).groups()
            for pattern in patterns.split("|"):
                found.add(arms, pattern.strip('"'), shlex.split(words)[0].split())
    return found


def words_of_completes(script: str) -> Words:
    """The ``complete`` lines of a fish script."""
    found = Words()
    for line in re.findall(r"^complete -c pointsman -n (.*)", script, re.MULTILINE):
        path, rest = re.fullmatch(r"'__pointsman_at \"([^\"]*)\"[^']*' (.*)", line).groups()
        flags = re.match(r"(?:-[ls] \S+ ?)*", rest)[0]
        names = [f"{'--' if d == 'l' else '-'}{n}" for d, n in re.findall(r"-([ls]) (\S+)", flags)]
        taken = re.match(r"(?:-x )?-a (?:'([^']*)'|(\S+))", rest[len(flags) :])
        words = (taken[1] or taken[2]).split() if taken else ()
        found.add(found.flags, path, names)
        if not names:
            found.add(found.below, path, words)
        for name in names:
            found.add(found.values, f"{path} {name}", words)
    return found


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_has_its_own_commands_flags_and_choices_in_the_script(shell):
    read = words_of_completes if shell == "fish" else words_of_arms
    script, parser = read(printed(shell)), words_of_the_parser(build_parser())
    assert parser.below[""] == {module.NAME for module in COMMANDS}
    assert script.flags == parser.flags
    for path, names in parser.below.items():
        assert script.below[path] == names
    for flag, choices in parser.values.items():
        assert script.values[flag] == choices
    parameters = {f"{name}:{each}=" for name, p in POLICIES.items() for each in p.parameters}
    assert script.values["/compare --policy"] == {*POLICIES, *parameters}


def test_the_command_prints_the_script(capsys):
    assert main(["completion", "bash"]) == 0
    assert capsys.readouterr().out == printed("bash")


def test_another_shell_is_a_usage_error_that_names_ours(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["completion", "tcsh"])
    assert caught.value.code == 2
    assert "'tcsh' is not one of bash, zsh, fish" in capsys.readouterr().err
