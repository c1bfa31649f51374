"""Parsing of the command line: no abbreviations, and the nearest flag for an unknown one.

A flag whose action ``comes_first`` is taken before all others, wherever it stands.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterable, Sequence
from typing import Any


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
        if args and self._subparsers is not None:
            self._check_action(args[0])
        for word in args or ():
            if word == "--" or word in self._actions_by_name():
                break
            self._check_flag(word)
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

    def _actions_by_name(self) -> Iterable[str]:
        """The subcommands, whose own parsers check what follows."""
        if self._subparsers is None:
            return ()
        return self._subparsers._group_actions[0].choices or ()

    def _check_action(self, word: str) -> None:
        """Of the first word: behind a flag it may be the flag's value."""
        if word.startswith("-") or self._subparsers is None or word in self._actions_by_name():
            return
        kind = str(self._subparsers._group_actions[0].metavar).lower()
        near = difflib.get_close_matches(word, self._actions_by_name(), n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; see {self.prog} --help"
        self.error(f"unknown {kind} {word!r}{hint}")

    def _check_flag(self, word: str) -> None:
        flag = word.partition("=")[0]
        known = self._option_string_actions
        if not flag.startswith("--") or " " in flag or flag in known:
            return
        near = difflib.get_close_matches(flag, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; see {self.prog} --help"
        self.error(f"unknown flag {flag}{hint}")
