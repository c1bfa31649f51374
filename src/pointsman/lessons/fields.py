"""Reading the lessons' dicts: one clear error for what is missing or of the wrong type."""

from __future__ import annotations

import math
import operator
from collections.abc import Container, Hashable, Mapping, Set
from numbers import Real
from typing import Any

import numpy as np

from pointsman.core.errors import InputError, missing_field, unknown_name, wrong_value

_MISSING = object()

DEFAULT: Any = object()

# Of one request; the lessons have two names for what is generated.
TOKEN_KEYS = ("prompt_tokens", "output_tokens", "generate_tokens")
_MAX_TOKENS = 1 << 53


def number(record: Mapping[str, Any], key: str, where: str, default: Any = DEFAULT) -> Any:
    """A finite number >= 0, as it is (an int stays an int); the default if the key is absent.

    Raises InputError when it is missing without a default, of another type, NaN, infinite or
    negative.
    """
    value = record.get(key, _MISSING)
    if value is _MISSING:
        if default is not DEFAULT:
            return default
        raise missing_field(where, key, "a finite number >= 0")
    return checked_number(value, key, where)


def checked_number(value: Any, name: str, where: str) -> Any:
    """The value if it is a finite number >= 0 (not a bool); else InputError."""
    wanted = "a finite number >= 0"
    if not isinstance(value, Real) or isinstance(value, bool):
        raise wrong_value(where, name, value, wanted)
    try:
        as_float = float(value)
    except OverflowError:
        raise wrong_value(where, name, value, wanted) from None
    if not (math.isfinite(as_float) and as_float >= 0):
        raise wrong_value(where, name, value, wanted)
    return value


def request_name(record: Mapping[str, Any], where: str) -> str:
    """The required ``request_id``: a string, or an int taken as one."""
    value = record.get("request_id", _MISSING)
    if value is _MISSING:
        raise missing_field(where, "request_id", "a string")
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise wrong_value(where, "request_id", value, "a string")
    return str(value)


def key_of(record: Mapping[str, Any], key: str, where: str) -> Hashable | None:
    """An optional name of any hashable type; None where absent."""
    value = record.get(key)
    try:
        hash(value)
    except TypeError:
        raise wrong_value(where, key, value, "a string or None") from None
    return value


def mapping(value: Any, where: str) -> Mapping[str, Any]:
    """The value if it is a dict; else InputError."""
    if not isinstance(value, Mapping):
        raise wrong_value(where, "the value", value, "a dict")
    return value


def replica_count(value: Any) -> int:
    """The value if it is an integer >= 1; else InputError."""
    count = _integer(value)
    if count is None or count < 1:
        raise wrong_value("fleet", "num_replicas", value, "an integer >= 1")
    return count


def turn(value: Any, replicas: int) -> int:
    """A round robin index, however large, as the replica whose turn it is; else InputError."""
    index = _integer(value)
    if index is None:
        raise wrong_value("routing", "round_robin_index", value, "an integer")
    return index % replicas


def owners(value: Any) -> Mapping[Any, Any]:
    """The value if it is a dict of session to replica; else InputError."""
    if not isinstance(value, Mapping):
        raise wrong_value("routing", "session_owner", value, "a dict of session to replica")
    return value


def cached_prefixes(replica: Mapping[str, Any], where: str) -> Container[Any]:
    """The required ``cached_prefixes``: a set, list or tuple of keys, or a dict by them.

    A string is refused: it would contain every part of itself.
    """
    value = replica.get("cached_prefixes", _MISSING)
    if value is _MISSING:
        raise missing_field(where, "cached_prefixes", "a set of keys")
    if not isinstance(value, Set | list | tuple | Mapping):
        raise wrong_value(where, "cached_prefixes", value, "a set of keys")
    return value


def cache_hit(record: Mapping[str, Any], where: str) -> bool:
    """The required ``cache_hit``: True or False, or the numbers 1 and 0 for them."""
    value = record.get("cache_hit", _MISSING)
    if value is _MISSING:
        raise missing_field(where, "cache_hit", "True or False")
    if not isinstance(value, Real | np.bool) or value not in (0, 1):
        raise wrong_value(where, "cache_hit", value, "True or False")
    return bool(value)


def tokens(record: Mapping[str, Any], key: str, where: str) -> int:
    """An optional count of tokens, 0 where absent, without a fraction; else InputError."""
    value = number(record, key, where, default=0)
    if value > _MAX_TOKENS:
        raise wrong_value(where, key, value, f"a number of tokens <= {_MAX_TOKENS}")
    return int(value)


def strategy_name(value: Any, known: tuple[str, ...]) -> str:
    """The value if it is one of the lesson's strategies; else InputError."""
    if not isinstance(value, str):
        raise wrong_value("routing", "strategy", value, f"one of {', '.join(known)}")
    if value not in known:
        raise unknown_name("routing", "strategy", value, known)
    return value


def ratio(value: Any, name: str, where: str) -> float:
    """The value if it is a number >= 0, infinity allowed (a limit that never binds)."""
    wanted = "a number >= 0"
    if not isinstance(value, Real) or isinstance(value, bool):
        raise wrong_value(where, name, value, wanted)
    try:
        as_float = float(value)
    except OverflowError:
        raise wrong_value(where, name, value, wanted) from None
    if not as_float >= 0:
        raise wrong_value(where, name, value, wanted)
    return as_float


def replica_index(value: Any, name: str, where: str, replicas: int) -> int:
    """The value if it is the index of a replica; else InputError."""
    index = _integer(value)
    if index is None or not 0 <= index < replicas:
        raise wrong_value(where, name, value, f"an integer in 0..{replicas - 1}")
    return index


def rows(values: Any, name: str) -> list[Mapping[str, Any]]:
    """A list of dicts, each checked to be one; else InputError naming the position."""
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__iter__"):
        raise InputError(f"{name}: got {type(values).__name__}; expected a list of dicts")
    return [mapping(value, f"{name}[{index}]") for index, value in enumerate(values)]


def _integer(value: Any) -> int | None:
    """The value as an int; None where it is none, or a bool."""
    if isinstance(value, bool | np.bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None
