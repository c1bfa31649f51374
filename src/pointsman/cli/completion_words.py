"""What a command line may hold, read off the parser: the words that a shell completes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

# Metavars of what is a path.
_PATHS = ("FILE", "TRACE", "LOG", "FOLDER", "FLEET", "RESULT", "EVIDENCE")


@dataclass(frozen=True, slots=True)
class Values:
    """What a flag or an argument takes: one of ``words``, a path, or anything.

    Words with a colon are those whose beginning, up to there, is one too. ``or_toml``: or a file of
    that ending.
    """

    words: tuple[str, ...] = ()
    is_path: bool = False
    or_toml: bool = False


@dataclass(frozen=True, slots=True)
class Flag:
    """``values`` is None for one that takes none."""

    names: tuple[str, ...]
    help: str
    values: Values | None


@dataclass(frozen=True, slots=True)
class Command:
    """One command by its words, such as ("trace", "info"); the empty tuple is the program."""

    words: tuple[str, ...]
    help: str
    flags: tuple[Flag, ...]
    arguments: Values  # of all its positions together
    below: tuple[Command, ...]

    @property
    def path(self) -> str:
        """``/trace/info``."""
        return "".join(f"/{word}" for word in self.words)

    def all(self) -> Iterator[Command]:
        """It and all below it."""
        yield self
        for command in self.below:
            yield from command.all()


def command_tree(
    parser: argparse.ArgumentParser,
    known: Mapping[str, Values],
    words: tuple[str, ...] = (),
) -> Command:
    """The commands of a parser; ``known``: what a flag of that name or metavar takes."""
    actions = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    below = [
        command_tree(child, known, (*words, name))
        for action in actions
        if isinstance(action, argparse._SubParsersAction)
        for name, child in action.choices.items()
    ]
    return Command(
        words=words,
        help=parser.description or "",
        flags=tuple(_flag(action, known) for action in actions if action.option_strings),
        arguments=_arguments(actions),
        below=tuple(below),
    )


def _flag(action: argparse.Action, known: Mapping[str, Values]) -> Flag:
    names = tuple(action.option_strings)
    if action.nargs == 0:
        return Flag(names, action.help or "", None)
    found = next((known[name] for name in (*names, str(action.metavar)) if name in known), None)
    return Flag(names, action.help or "", _values(action) if found is None else found)


def _arguments(actions: list[argparse.Action]) -> Values:
    taken = [
        _values(action)
        for action in actions
        if not action.option_strings and not isinstance(action, argparse._SubParsersAction)
    ]
    words = tuple(word for values in taken for word in values.words)
    return Values(words, any(values.is_path for values in taken))


def _values(action: argparse.Action) -> Values:
    if action.choices is not None:
        return Values(tuple(map(str, action.choices)))
    metavars = action.metavar if isinstance(action.metavar, tuple) else (action.metavar or "",)
    named = any(each.startswith(_PATHS) for each in metavars)
    return Values(is_path=named or action.type is Path)
