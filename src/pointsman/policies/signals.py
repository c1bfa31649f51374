"""What a policy's code uses of a request and a view, found by the names in it."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

from pointsman.core.compiled import reachable_functions
from pointsman.core.errors import InputError

SIGNAL_OF_NAME = {
    "FREE_AT_MS": "queue",
    "REQUESTS": "requests",
    "CACHED_TOKENS": "prefix",
    "WORK_MS": "work",
    "FULL_WORK_MS": "work",
    "PENDING_TOKENS": "pending",
    "CONTEXT_TOKENS": "context",
    "WAITING_REQUESTS": "engine",
    "RUNNING_REQUESTS": "engine",
    "KV_USE": "engine",
    "ITERATION_MS": "decode",
    "longest_hit_tokens": "prefix",
    "key": "key",
    "CANDIDATE": "key",
    "home": "session",
    "random": "random",
}

IMPURE_MODULES = frozenset(("random", "time", "datetime", "secrets", "os", "socket"))


def used_signals(function: Callable[..., Any]) -> set[str]:
    """The signals that the function and the helpers that it calls name."""
    names = {name for each in reachable_functions(function) for name in each.__code__.co_names}
    return {signal for name, signal in SIGNAL_OF_NAME.items() if name in names}


def check_signals(name: str, function: Callable[..., Any], reads: tuple[str, ...]) -> None:
    """Refuse a policy that uses what its ``reads`` does not name: it would see NaN."""
    undeclared = sorted(used_signals(function) - set(reads))
    if undeclared:
        used = [word for word, signal in SIGNAL_OF_NAME.items() if signal == undeclared[0]]
        raise InputError(
            f"policy {name}: it uses {' or '.join(used)}, but reads is {reads!r}; expected"
            f" {undeclared[0]!r} in it"
        )


def check_purity(name: str, function: Callable[..., Any]) -> None:
    """Refuse a policy that reaches for a clock, a random source or the machine."""
    for each in reachable_functions(function):
        for word in each.__code__.co_names:
            value = each.__globals__.get(word)
            if isinstance(value, ModuleType) and value.__name__ in IMPURE_MODULES:
                raise InputError(
                    f"policy {name}: it uses the module {value.__name__}; expected a pure function"
                    " (request.random is the one draw it gets)"
                )
