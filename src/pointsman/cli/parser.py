"""Parsing of the command line: no abbreviations, and the nearest word for an unknown one.

What is wrong is one line that says where the help is, not the whole usage.

A flag whose action ``comes_first`` is taken before all others, wherever it stands.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

_HELP = "--help"


class Parser(argparse.ArgumentParser):
    """A parser that takes flags by their whole names only; its subcommands' parsers do too."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**{**named, "allow_abbrev": False})

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse as ever, but say first which subcommand or flag nobody knows (exit code 2).

        Otherwise a misspelt flag that is required would be said to be missing.
        """
        is_value = False
        for word in args or ():
            is_command = self._subparsers is not None and not (is_value or word.startswith("-"))
            if word == "--" or is_command:  # the command's own parser checks what follows
                break
            self._check_flag(word)
            is_value = self._takes_value(word)
        return super().parse_known_args(self._in_order(args), namespace)

    def _in_order(self, words: Sequence[str] | None) -> Sequence[str] | None:
        firsts = {
            flag
            for action in self._actions
            for flag in action.option_strings
            if getattr(action, "comes_first", False)
        }
        if words is None or not firsts:
            return words
        first: list[str] = []
        rest: list[str] = []
        is_value = False
        for word in words:
            comes_first = is_value or word.partition("=")[0] in firsts
            (first if comes_first else rest).append(word)
            is_value = not is_value and word in firsts
        return first + rest

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As ever; what is left over is mostly a second value of a flag that takes one."""
        found, left = self.parse_known_args(args, namespace)
        if left:
            words = " ".join(left)
            self.error(
                f"{words}: more than the command takes; where a flag may be repeated, each of its"
                " values wants the flag before it"
            )
        return found

    def error(self, message: str) -> NoReturn:
        """End with exit code 2: the message, and where the help is in place of the usage."""
        see = "" if _HELP in message else f"; see {self.prog} {_HELP}"
        self.exit(2, f"{self.prog}: {message}{see}\n")

    def _takes_value(self, word: str) -> bool:
        action = self._option_string_actions.get(word)
        return action is not None and action.nargs != 0

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """As ever, with the nearest choice said."""
        choices = action.choices
        if choices is None or value in choices:
            return
        near = _nearest(str(value), map(str, choices))
        if isinstance(action, argparse._SubParsersAction):
            self.error(f"unknown {str(action.metavar).lower()} {value}{near}")
        known = ", ".join(map(str, choices))
        raise argparse.ArgumentError(action, f"{value!r} is not one of {known}{near}")

    def _check_flag(self, word: str) -> None:
        flag = word.partition("=")[0]
        known = self._option_string_actions
        if not flag.startswith("--") or " " in flag or flag in known:
            return
        self.error(f"unknown flag {flag}{_nearest(flag, known)}")


def _nearest(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""
