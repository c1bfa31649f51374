"""Workloads drawn from one seed: arrivals, lengths, shared system prompts, conversations.

Equal (traffic, seed) give equal columns. Each distribution draws from a stream of its own, so
that changing one leaves what the others draw as it was.

Turn k of a conversation is its system prompt, all messages and answers so far, and a new message:

    turn 1   [system][message 1]
    turn 2   [system][message 1][answer 1][message 2]        turn 1's full blocks begin turn 2
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pointsman.core.errors import InputError, wrong_value
from pointsman.workload.arrivals import Arrivals
from pointsman.workload.distributions import Constant, Distribution
from pointsman.workload.numbering import first_appearances, renumbered
from pointsman.workload.streams import stream
from pointsman.workload.workload import (
    MAX_TIME_MS,
    MAX_TOKENS,
    Floats,
    Ints,
    Longs,
    Source,
    Workload,
    workload_of_columns,
)

# A request of tokens takes 44 bytes, and several times that while it is drawn.
MAX_REQUESTS = 100_000_000
DEFAULT_BLOCK_SIZE_TOKENS = 16  # vllm-project/vllm's default block
_SOURCE = Source(name="generated", format="generated")


@dataclass(frozen=True, slots=True)
class SystemPrompts:
    """Prompts that conversations share: prompt r is chosen with weight ``r ** -zipf_exponent``."""

    tokens: Distribution  # of each prompt
    count: int = 1
    zipf_exponent: float = 1.0

    def __post_init__(self) -> None:
        _check_count("system prompts", self.count, MAX_REQUESTS)
        if not 0.0 <= self.zipf_exponent < math.inf:
            raise wrong_value("generator", "zipf_exponent", self.zipf_exponent, "a number >= 0")


@dataclass(frozen=True, slots=True)
class Conversations:
    """Sessions of several turns.

    The arrival process is that of all requests: a request is the next turn of the conversation
    that has been due longest, else the first of a new one. A turn is due ``think_time_ms`` after
    the turn before it **arrived** (the schedule is fixed beforehand and knows no answer times).
    """

    turns: Distribution  # of each conversation
    think_time_ms: Distribution


@dataclass(frozen=True, slots=True)
class Traffic:
    """What to generate.

    ``prompt_tokens`` is what a request adds: its whole prompt, or with system prompts or
    conversations its new message. It and ``output_tokens`` are 1 where less is
    drawn. A conversation ends before the turn whose prompt would exceed ``max_prompt_tokens``, and
    a first prompt is cut there.

    Raises InputError for a count out of its range, and a length that is 0 for all requests.
    """

    requests: int
    arrivals: Arrivals
    prompt_tokens: Distribution
    output_tokens: Distribution
    conversations: Conversations | None = None
    system_prompts: SystemPrompts | None = None
    block_size_tokens: int = DEFAULT_BLOCK_SIZE_TOKENS
    max_prompt_tokens: int = MAX_TOKENS

    def __post_init__(self) -> None:
        _check_count("requests", self.requests, MAX_REQUESTS)
        for name in ("block_size_tokens", "max_prompt_tokens"):
            _check_count(name, getattr(self, name), MAX_TOKENS)
        for name in ("prompt_tokens", "output_tokens"):
            lengths = getattr(self, name)
            if isinstance(lengths, Constant) and round(lengths.value) < 1:
                raise wrong_value("generator", name, lengths.value, "1 or more")


class _Turns(NamedTuple):
    """A row a request: its conversation and its whole prompt."""

    conversation: Ints
    prompt_tokens: Ints


def generate(traffic: Traffic, seed: int = 0) -> Workload:
    """The workload of that traffic; ``seed`` is an integer >= 0.

    Prefixes exist where there are conversations or system prompts: all full blocks of a prompt,
    numbered in order of first appearance. Raises InputError where a length or the number of
    blocks of all prompts together exceeds 2**31 - 1, or an arrival 1e15 ms.
    """
    count = traffic.requests
    arrival_ms = _arrivals_ms(traffic, seed)
    message = _at_least_one("prompt_tokens", traffic.prompt_tokens, count, stream(seed, "prompt"))
    output = _at_least_one("output_tokens", traffic.output_tokens, count, stream(seed, "output"))
    if traffic.conversations is None and traffic.system_prompts is None:
        return workload_of_columns(
            arrival_ms,
            prompt_tokens=np.minimum(message, traffic.max_prompt_tokens),
            output_tokens=output,
            source=_SOURCE,
        )
    prompts, chosen = _system_prompts(traffic, seed)
    drawn = _Drawn(arrival_ms, message, output, prompts[chosen])
    if traffic.conversations is None:
        turns = _single_turns(drawn, traffic.max_prompt_tokens)
    else:
        turns = _conversation_turns(drawn, traffic, seed)
    starts, blocks = _chains(turns, prompts, chosen, traffic.block_size_tokens)
    return workload_of_columns(
        arrival_ms,
        prompt_tokens=turns.prompt_tokens,
        output_tokens=output,
        session=None if traffic.conversations is None else turns.conversation,
        chain_start=starts,
        chain_blocks=renumbered(blocks, first_appearances(blocks)),
        block_size_tokens=traffic.block_size_tokens,
        source=_SOURCE,
    )


class _Drawn(NamedTuple):
    arrival_ms: Floats
    message_tokens: Ints  # of each request
    output_tokens: Ints  # of each request
    system_tokens: Ints  # of each conversation


def _check_count(name: str, count: int, most: int) -> None:
    if not 1 <= count <= most:
        raise wrong_value("generator", name, count, f"an integer in 1..{most}")


def _arrivals_ms(traffic: Traffic, seed: int) -> Floats:
    with np.errstate(over="ignore", invalid="ignore"):
        arrival_ms = traffic.arrivals.draw_ms(traffic.requests, stream(seed, "arrivals"))
    if not arrival_ms[-1] <= MAX_TIME_MS:
        wanted = f"at most {MAX_TIME_MS:g} ms (ask for a higher rate)"
        raise wrong_value("generator", "the last arrival", float(arrival_ms[-1]), wanted)
    return arrival_ms


def _whole(name: str, lengths: Distribution, count: int, random: np.random.Generator) -> Ints:
    drawn = np.rint(lengths.draw(count, random))
    if count and not drawn.max() <= MAX_TOKENS:
        wanted = f"draws up to {MAX_TOKENS} (give the distribution a max)"
        raise wrong_value("generator", name, float(drawn.max()), wanted)
    return drawn.astype(np.int32)


def _at_least_one(
    name: str, lengths: Distribution, count: int, random: np.random.Generator
) -> Ints:
    """Draws of a token or more: no engine takes an empty prompt, or gives an empty answer."""
    return np.maximum(_whole(name, lengths, count, random), 1)


def _system_prompts(traffic: Traffic, seed: int) -> tuple[Ints, Ints]:
    """The length of each system prompt, and which one each conversation has."""
    shared = traffic.system_prompts
    if shared is None:
        return np.zeros(1, dtype=np.int32), np.zeros(traffic.requests, dtype=np.int32)
    lengths = _whole(
        "system prompt tokens", shared.tokens, shared.count, stream(seed, "system lengths")
    )
    weights = np.arange(1, shared.count + 1, dtype=np.float64) ** -shared.zipf_exponent
    upper = np.cumsum(weights)
    draws = stream(seed, "system choice").random(traffic.requests) * upper[-1]
    chosen = np.minimum(np.searchsorted(upper, draws, side="right"), shared.count - 1)
    return lengths, chosen.astype(np.int32)


def _single_turns(drawn: _Drawn, max_prompt_tokens: int) -> _Turns:
    prompt = drawn.system_tokens.astype(np.int64) + drawn.message_tokens
    return _Turns(
        np.arange(prompt.size, dtype=np.int32),
        np.minimum(prompt, max_prompt_tokens).astype(np.int32),
    )


def _conversation_turns(drawn: _Drawn, traffic: Traffic, seed: int) -> _Turns:
    """Which turn each arrival is; one pass with a heap of the turns that are to come."""
    assert traffic.conversations is not None
    count = traffic.requests
    turns = traffic.conversations.turns.draw(count, stream(seed, "turns")).tolist()
    think_ms = traffic.conversations.think_time_ms.draw(count, stream(seed, "think")).tolist()
    message, output = drawn.message_tokens.tolist(), drawn.output_tokens.tolist()
    system = drawn.system_tokens.tolist()
    most = traffic.max_prompt_tokens

    conversation, prompt, left = [0] * count, [0] * count, [0.0] * count
    due: list[tuple[float, int]] = []  # when the turn after that row is due
    started = 0
    for row, now_ms in enumerate(drawn.arrival_ms.tolist()):
        tokens = most + 1
        while tokens > most and due and due[0][0] <= now_ms:
            previous = heapq.heappop(due)[1]
            tokens = prompt[previous] + output[previous] + message[row]
        if tokens <= most:
            conversation[row] = conversation[previous]
            left[row] = left[previous] - 1
        else:
            conversation[row] = started
            tokens = min(system[started] + message[row], most)
            left[row] = round(turns[started]) - 1
            started += 1
        prompt[row] = tokens
        if left[row] > 0:
            heapq.heappush(due, (now_ms + think_ms[row], row))
    return _Turns(np.array(conversation, dtype=np.int32), np.array(prompt, dtype=np.int32))


def _chains(
    turns: _Turns, system_tokens: Ints, chosen: Ints, block_size_tokens: int
) -> tuple[Longs, Ints]:
    """The full blocks of every prompt.

    Ids, before they are numbered by appearance:

        [system prompt 0][system prompt 1]...[conversation 0 behind its system prompt][1]...
    """
    owner = turns.conversation
    system_blocks = (system_tokens // block_size_tokens).astype(np.int64)
    shared = system_blocks[chosen]
    lengths = (turns.prompt_tokens // block_size_tokens).astype(np.int64)
    own = np.zeros(chosen.size, dtype=np.int64)
    np.maximum.at(own, owner, lengths - shared[owner])
    system_first = np.cumsum(system_blocks) - system_blocks
    own_first = system_blocks.sum() + np.cumsum(own) - own
    if max(own_first[-1] + own[-1], lengths.sum()) > MAX_TOKENS:
        raise InputError(
            f"generator: more than {MAX_TOKENS} blocks; expected fewer requests or larger blocks"
        )
    starts = np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths)))
    place = np.arange(starts[-1]) - np.repeat(starts[:-1], lengths)
    held = np.repeat(owner, lengths)
    in_system = place < shared[held]
    blocks = np.where(
        in_system, system_first[chosen[held]] + place, own_first[held] + place - shared[held]
    )
    return starts, blocks.astype(np.int32)
