"""Compilation at the first call, kept on disk between processes.

Every compiled function has an explicit signature, so that it is compiled once per user and found
again by every later process. The cache lies in ``$NUMBA_CACHE_DIR``, else under the user's cache
folder (``$XDG_CACHE_HOME`` or ``~/.cache``), never beside the sources: an install may be read-only.
Where no folder can be written, functions are compiled in every process.

A compiled function contains the helpers it calls from other files, and Numba only looks at the
function's own file to tell whether its cache is stale. Here the key is a digest of all of
Pointsman's sources **and** of every file of a user's from which something is compiled in, so that
code of another version is never served.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar, cast

import numba
from numba.core import caching
from numba.core.registry import cpu_target

F = TypeVar("F", bound=Callable[..., Any])

# Without Numba's run-time memory (`_nrt`) a kernel cannot allocate, and passing arrays around costs
# no reference counting: a third of the time of a short loop.
_OPTIONS: dict[str, Any] = {"error_model": "numpy", "nogil": True, "_nrt": False}

# What only kernels call needs no entries from Python and C.
_INNER: dict[str, Any] = {**_OPTIONS, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}

_PACKAGE = Path(__file__).resolve().parent.parent


@cache
def source_digest() -> str:
    """A digest of every Python source of the package: 16 hexadecimal digits."""
    digest = hashlib.blake2b(digest_size=8)
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(path.relative_to(_PACKAGE).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def cache_folder() -> Path:
    """Where compiled code of this version is kept."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return Path(chosen) / f"pointsman-{source_digest()}"
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(home) / "pointsman" / source_digest()


def reachable_functions(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """The function and all Python functions that its code may call by a global or closed-over name,
    compiled or not."""
    found: dict[int, Callable[..., Any]] = {}
    waiting = [getattr(function, "py_func", function)]
    while waiting:
        current = waiting.pop()
        if id(current) in found or not isinstance(current, FunctionType):
            continue
        found[id(current)] = current
        values = [current.__globals__.get(name) for name in current.__code__.co_names]
        values += [cell.cell_contents for cell in current.__closure__ or ()]
        waiting += [getattr(value, "py_func", value) for value in values]
    yield from found.values()


def _users_digest(function: Callable[..., Any]) -> str:
    """A digest of what a user's code compiles in: its functions' files, and constants by value."""
    digest = hashlib.blake2b(digest_size=16)
    for each in reachable_functions(function):
        path = Path(each.__code__.co_filename).resolve()
        if not path.is_file() or path.is_relative_to(_PACKAGE):
            continue
        digest.update(path.read_bytes())
        for name in each.__code__.co_names:
            value = each.__globals__.get(name)
            if isinstance(value, int | float | str | tuple):
                digest.update(f"{name}={value!r};".encode())
    return digest.hexdigest()


class _Locator(caching._SourceFileBackedLocatorMixin, caching._CacheLocator):  # type: ignore[misc]
    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._py_file = file
        self._lineno = function.__code__.co_firstlineno
        folder = self.get_suitable_cache_subpath(file)
        self._folder = str(cache_folder() / folder)
        self._users_digest = _users_digest(function)

    def get_cache_path(self) -> str:
        return self._folder

    def get_source_stamp(self) -> tuple[str, str]:
        return (source_digest(), self._users_digest)


class _CompileResults(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = [_Locator]  # noqa: RUF012


class _FunctionCache(caching.FunctionCache):  # type: ignore[misc]
    """A cache that is only ever a help: what is damaged is dropped, what cannot be kept is not."""

    _impl_class = _CompileResults

    def has(self, signature: Any) -> bool:
        """Whether it was compiled for that signature; nothing is loaded."""
        key = self._index_key(signature, cpu_target.target_context.codegen())
        return key in self._cache_file._load_index()

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(signature, target_context)
        except Exception:  # whatever unpickling damaged bytes raises
            with contextlib.suppress(OSError):
                self.flush()
            return None

    def save_overload(self, signature: Any, data: Any) -> None:
        with contextlib.suppress(Exception):  # a full disk, a folder that went away, damage
            super().save_overload(signature, data)


class Kernel:
    """A function compiled for one signature at its first call, or loaded from the cache.

    Divisions follow IEEE 754 (no ZeroDivisionError) and there is no fast-math: results are those
    of plain doubles, bit for bit. ``dispatcher`` is what other compiled code takes as a
    first-class function.
    """

    def __init__(self, function: Callable[..., Any], signature: Any) -> None:
        self.function = function
        self._signature = signature

    def is_cached(self) -> bool:
        """Whether a process finds it compiled."""
        try:
            return _FunctionCache(self.function).has(self._signature)
        except Exception:  # no folder that can be written, or whatever damaged bytes raise
            return False

    @cached_property
    def dispatcher(self) -> Any:
        """The compiled function."""
        dispatcher = numba.njit(**_OPTIONS)(self.function)
        # Without a folder that can be written the function is compiled in every process.
        with contextlib.suppress(RuntimeError):
            dispatcher._cache = _FunctionCache(self.function)
        dispatcher.compile(self._signature)
        dispatcher.disable_compile()
        return dispatcher

    def __call__(self, *arguments: Any) -> Any:
        """Run it on arguments of exactly the declared types."""
        return self.dispatcher(*arguments)


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Decorate a function to make it a Kernel of that signature."""
    return lambda function: Kernel(function, signature)


def helper(function: F) -> F:
    """Make a function that kernels can call; Python can call it too.

    LLVM decides whether its code is put in place: right for what loops itself.
    """
    return cast("F", numba.njit(**_OPTIONS)(function))


def inlined(function: F) -> F:
    """Make a helper whose code is put in place of each call: right for what is short.

    A call with arrays pushes each of their fields on the stack: some 7 ns, which is half of what
    a request may cost.
    """
    return cast("F", numba.njit(forceinline=True, **_OPTIONS)(function))


def inner(function: F) -> F:
    """Make a helper that **only** kernels can call: Python that calls it crashes.

    It takes half the time to compile, for it needs no entries from Python and C.
    """
    return cast("F", numba.njit(**_INNER)(function))


def inner_inlined(function: F) -> F:
    """The same of ``inlined``."""
    return cast("F", numba.njit(forceinline=True, **_INNER)(function))
