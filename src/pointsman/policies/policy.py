"""What a policy is: a pure function of (request, view of the fleet) that returns a choice.

    choose(request, view, parameters) -> (candidate, reason)
    choose(request, view, parameters, in_flight) -> (candidate, reason)

``request``     a record: the fields of ``REQUEST``.
``view``        float64 of shape (ROWS, candidates), a row a signal: ``view[FREE_AT_MS, i]``.
                Only eligible candidates have a column, so a policy cannot pick another.
``parameters``  float64, in the order of the policy's ``parameters``.
``candidate``   the column chosen.
``reason``      an index into the policy's ``reasons``.

The function is written in the subset of Python that Numba compiles, and reads no clock, file,
global variable or random source. The simulator, the live router and the replay of a log call the
same compiled object.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, Protocol

import numba
import numpy as np
from numba import types
from numba.core.errors import NumbaError
from numpy.typing import NDArray

from pointsman.core.compiled import Kernel
from pointsman.core.errors import InputError, unknown_name, wrong_value
from pointsman.policies.in_flight import IN_FLIGHT_TYPE
from pointsman.policies.signals import check_purity, check_signals, used_signals

REQUEST = np.dtype(
    [
        ("now_ms", np.float64),  # the instant of the choice
        ("prompt_tokens", np.int64),  # -1 where unknown
        ("sequence", np.int64),  # how many requests were routed before this one
        ("home", np.int64),  # the candidate that served the session's last request, or -1
        ("longest_hit_tokens", np.float64),  # the largest CACHED_TOKENS of any candidate
        ("random", np.float64),  # one draw from [0, 1), the policy's only randomness
        ("key", np.int64),  # the same for requests of one session, else of one first block; >= 0
    ],
    align=True,
)

# The rows of a view. A row that the policy does not list in `reads` is NaN. A candidate is a
# replica, or, where prefill and decode are apart, a pair of them.
FREE_AT_MS = 0  # when the candidate can start one more request; in the past when it is idle
REQUESTS = 1  # requests sent there and not finished
CACHED_TOKENS = 2  # leading tokens of this request's prompt in its cache; 0 for a miss
WORK_MS = 3  # what the uncached rest of the prompt is expected to take there, by itself
FULL_WORK_MS = 4  # what all of it would take
PENDING_TOKENS = 5  # uncached prompt tokens of the requests there without a first token
CONTEXT_TOKENS = 6  # prompts, and answers so far, of all requests there
WAITING_REQUESTS = 7  # the engine's own gauge, as old as the last reading
RUNNING_REQUESTS = 8  # the same
KV_USE = 9  # the same; 0..1
ITERATION_MS = 10  # what an iteration of those that decode there is expected to take

CANDIDATE = 11  # its number, the same whoever else is eligible

# The name in `reads` of each row; rows of one name come together.
SIGNAL_OF_ROW = (
    "queue",
    "requests",
    "prefix",
    "work",
    "work",
    "pending",
    "context",
    "engine",
    "engine",
    "engine",
    "decode",
    "key",
)
ROWS = len(SIGNAL_OF_ROW)
# What the rows are called in a decision log; the last one is the candidates themselves.
LOGGED_ROWS = (
    "queue",
    "requests",
    "prefix",
    "work_ms",
    "full_work_ms",
    "pending_tokens",
    "context_tokens",
    "waiting",
    "running",
    "kv_use",
    "iteration_ms",
)
SESSION = "session"  # the name of `request.home` in `reads`
RANDOM = "random"  # the name of `request.random` in `reads`
IN_FLIGHT = "in_flight"  # the name of the fourth argument in `reads`

# What every driver can fill, and what only replicas that batch have.
BASIC = ("queue", "requests", "prefix", "work", SESSION, RANDOM)
READABLE = (*BASIC, "pending", "context", "engine", "decode", "key", IN_FLIGHT)

View = NDArray[np.float64]
Parameters = NDArray[np.float64]


class Request(Protocol):
    """One row of ``REQUEST`` as a policy sees it."""

    now_ms: float
    prompt_tokens: int
    sequence: int
    home: int
    longest_hit_tokens: float
    random: float
    key: int


Choose = Callable[..., tuple[int, int]]

CHOOSE_ARGUMENTS = ("request", "view", "parameters")
WITH_IN_FLIGHT = (*CHOOSE_ARGUMENTS, IN_FLIGHT)
MAX_REASONS = 127  # they are kept in 8 bits

REQUEST_TYPE = numba.from_dtype(REQUEST)
VIEW_TYPE = types.Array(types.float64, 2, "C")
PARAMETERS_TYPE = types.Array(types.float64, 1, "C")
CHOICE_TYPE = types.UniTuple(types.int64, 2)
CHOOSE_SIGNATURE = CHOICE_TYPE(REQUEST_TYPE, VIEW_TYPE, PARAMETERS_TYPE)
CHOOSE_IN_FLIGHT_SIGNATURE = CHOICE_TYPE(REQUEST_TYPE, VIEW_TYPE, PARAMETERS_TYPE, IN_FLIGHT_TYPE)


@dataclass(frozen=True)
class Policy:
    """A routing rule with its name, source and reasons, and values for its parameters."""

    name: str
    rule: str
    source: str
    function: Choose
    reasons: tuple[str, ...]
    parameters: Mapping[str, float] = field(default_factory=dict)
    reads: frozenset[str] = frozenset(BASIC)

    @cached_property
    def choose(self) -> Any:
        """The compiled function; called from Python in about a microsecond.

        Raises InputError when it is not in the subset that Numba compiles.
        """
        return _compiled(self.function, signature_for(self.reads))

    def __getstate__(self) -> dict[str, Any]:
        """Without what was compiled: another process finds it in the cache."""
        return {name: value for name, value in vars(self).items() if name != "choose"}

    @property
    def needs_batching(self) -> tuple[str, ...]:
        """The signals it reads that only replicas which batch have."""
        return tuple(sorted(self.reads - set(BASIC)))

    @cached_property
    def parameter_values(self) -> Parameters:
        """The parameters as the compiled function takes them."""
        return np.array(list(self.parameters.values()), dtype=np.float64)

    def bind(self, **values: float) -> Policy:
        """The same policy with some parameters set; each is a finite number >= 0.

        Raises InputError for an unknown parameter, or a value that is none.
        """
        for name, value in values.items():
            if name not in self.parameters:
                if not self.parameters:
                    raise InputError(f"policy {self.name} takes no parameters; got {name}")
                raise unknown_name(f"policy {self.name}", "parameter", name, self.parameters)
            if not 0 <= value < np.inf:
                raise wrong_value(f"policy {self.name}", name, value, "a finite number >= 0")
        return replace(self, parameters={**self.parameters, **values})

    @property
    def label(self) -> str:
        """The name with the parameters: ``locality_aware(slack_ms=5)``."""
        if not self.parameters:
            return self.name
        values = ", ".join(f"{name}={value:g}" for name, value in self.parameters.items())
        return f"{self.name}({values})"


def signature_for(reads: frozenset[str]) -> Any:
    """The type of a policy's function that reads these signals."""
    return CHOOSE_IN_FLIGHT_SIGNATURE if IN_FLIGHT in reads else CHOOSE_SIGNATURE


def view_for(reads: frozenset[str], candidates: int) -> View:
    """A view whose rows are NaN but for those that are read, which are 0."""
    view = np.full((ROWS, candidates), np.nan, dtype=np.float64)
    for row, signal in enumerate(SIGNAL_OF_ROW):
        if signal in reads:
            view[row] = 0.0
    return view


@cache
def _compiled(function: Choose, signature: Any) -> Any:
    try:
        return Kernel(function, signature).dispatcher
    except (NumbaError, AttributeError, KeyError, NotImplementedError, TypeError) as error:
        why = " ".join(str(error).split())[:300]
        raise InputError(f"policy {function.__name__} does not compile: {why}") from error


def _check_reasons(name: str, reasons: tuple[str, ...]) -> None:
    if isinstance(reasons, str) or not 1 <= len(reasons) <= MAX_REASONS:
        raise wrong_value(
            f"policy {name}", "reasons", reasons, f"a tuple of 1 to {MAX_REASONS} names"
        )
    for reason in reasons:
        if not isinstance(reason, str) or not reason.isprintable() or not reason.isascii():
            raise wrong_value(f"policy {name}", "a reason", reason, "a name in printable ASCII")


def _signals_read(name: str, function: Choose, reads: tuple[str, ...] | None) -> frozenset[str]:
    shape = inspect.signature(function).parameters
    if len(shape) not in (len(CHOOSE_ARGUMENTS), len(WITH_IN_FLIGHT)):
        raise InputError(
            f"policy {name}: it takes {inspect.signature(function)}; expected"
            f" ({', '.join(CHOOSE_ARGUMENTS)}) or ({', '.join(WITH_IN_FLIGHT)})"
        )
    read = frozenset(reads if reads is not None else {*BASIC, *used_signals(function)})
    if len(shape) == len(WITH_IN_FLIGHT):
        return read | {IN_FLIGHT}
    if IN_FLIGHT in read:
        raise InputError(f"policy {name}: it reads in_flight; expected a fourth argument")
    return read


def policy(
    *,
    rule: str,
    source: str,
    reasons: tuple[str, ...],
    parameters: Mapping[str, float] | None = None,
    reads: tuple[str, ...] | None = None,
) -> Callable[[Choose], Policy]:
    """Make a Policy of a function, named after it.

    ``rule`` says in a sentence what it chooses, ``source`` where the rule comes from. ``reads``
    names the signals it uses, out of ``READABLE``: a driver keeps up only those (default: ``BASIC``
    and what the code names). A function of four arguments gets the requests in flight as well
    (``policies/in_flight.py``).
    """

    def decorate(function: Choose) -> Policy:
        name = function.__name__
        for signal in reads or ():
            if signal not in READABLE:
                raise unknown_name(f"policy {name}", "signal", signal, READABLE)
        _check_reasons(name, reasons)
        for parameter, value in (parameters or {}).items():
            if not isinstance(value, int | float) or not 0 <= value < np.inf:
                raise wrong_value(f"policy {name}", parameter, value, "a finite number >= 0")
        read = _signals_read(name, function, reads)
        check_signals(name, function, tuple(sorted(read)))
        check_purity(name, function)
        return Policy(
            name=name,
            rule=rule,
            source=source,
            function=function,
            reasons=reasons,
            parameters=dict(parameters or {}),
            reads=read,
        )

    return decorate


def check_each_once(where: str, policies: Sequence[Policy]) -> None:
    """Refuse no policies, and two that are the same."""
    if not policies:
        raise InputError(f"{where}: no policy; expected at least one")
    labels = [policy.label for policy in policies]
    for label in labels:
        if labels.count(label) > 1:
            raise wrong_value(where, "policy", label, "each policy once")
