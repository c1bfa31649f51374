"""How many tokens a text has, from the server itself.

``/tokenize`` counts where there is one (vLLM and SGLang take ``prompt``, llama.cpp ``content``, and
each leaves the other key alone); ``usage`` of a request that is answered is what counts in the end.
What engines put around a prompt (a token for its beginning, a chat template) is the overhead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from pointsman.bench.client.exchange import Exchange
from pointsman.bench.client.requests import body_of, request_of
from pointsman.bench.client.rows import OK, TIMEOUT
from pointsman.bench.client.sender import Sender
from pointsman.bench.client.target import CHAT, Target
from pointsman.bench.client.words import WORDS, text_of
from pointsman.core.errors import MachineError

Count = Callable[[str], Awaitable[int]]

_FEW, _MANY = 8, 72  # words of the two prompts that are sent to be counted
_LEAST_WORDS = 16  # different ones that prompts are made of
_TIMEOUT_S = 120.0


class _Tokens(msgspec.Struct):
    tokens: list[object] = []
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Lengths:
    """How texts are made to have a length in tokens.

    Where ``characters_a_token`` is None each word is one token; else it is what was calibrated, and
    lengths are approximate. ``how`` says it in a sentence; ``mismatch`` is what does not fit.
    """

    words: tuple[str, ...] = WORDS
    overhead_tokens: int = 0
    characters_a_token: float | None = None
    how: str = "each word taken to be a token: no server was asked"
    mismatch: str | None = None


async def lengths_of(sender: Sender, target: Target) -> Lengths:
    """Ask the server. Raises MachineError where a first request is not answered with its usage."""
    words = await _single_token_words(sender, target)
    used = words or WORDS
    few, many = (text_of(_chosen(used, n, skip)) for n, skip in ((_FEW, 0), (_MANY, 5)))
    few_tokens = await _prompt_tokens(sender, target, few)
    many_tokens = await _prompt_tokens(sender, target, many)
    mismatch = await _mismatch(sender, target, (few, few_tokens)) if words else None
    if many_tokens - few_tokens == _MANY - _FEW:
        source = "/tokenize and usage" if words else "usage"
        how = f"{len(used)} words of one token each, by {source}"
        return Lengths(used, few_tokens - _FEW, None, how, mismatch)
    grown = many_tokens - few_tokens
    if grown <= 0:
        raise MachineError(
            f"load client: {target.url}: usage says {few_tokens} and {many_tokens} prompt tokens"
            f" for texts of {_FEW} and {_MANY} words; expected more for the longer one"
        )
    characters = (len(many) - len(few)) / grown
    overhead = max(0, round(few_tokens - len(few) / characters))
    how = f"{characters:.3g} characters a token, calibrated on usage of two requests"
    return Lengths(used, overhead, characters, how, mismatch)


async def count_tokens(sender: Sender, target: Target, text: str) -> int | None:
    """The tokens of a text by ``/tokenize``; None where the server has none."""
    body = msgspec.json.encode(
        {"model": target.model, "prompt": text, "content": text}
        | {"add_special": True, "add_special_tokens": True}
    )
    exchange = await _asked(sender, request_of(target, b"/tokenize", body))
    if exchange.status != OK or exchange.answer is None:
        return None
    try:
        found = msgspec.json.decode(exchange.answer.body, type=_Tokens)
    except msgspec.MsgspecError:
        return None
    return found.count if found.count is not None else len(found.tokens) or None


async def _single_token_words(sender: Sender, target: Target) -> tuple[str, ...]:
    """Those of our words that are one token each; empty where too few are, or nobody counts."""
    once = await count_tokens(sender, target, text_of([WORDS[0]]))
    twice = await count_tokens(sender, target, text_of([WORDS[0]] * 2))
    if once is None or twice is None:
        return ()
    around = 2 * once - twice

    async def count(words: list[str]) -> int:
        tokens = await count_tokens(sender, target, text_of(words))
        return (tokens or 0) - around

    found = await _of_one_token(count, list(WORDS))
    return tuple(found) if len(found) >= _LEAST_WORDS else ()


async def _of_one_token(
    count: Callable[[list[str]], Awaitable[int]], words: list[str]
) -> list[str]:
    """Halves with more tokens than words are looked at again, down to the single word."""
    if await count(words) == len(words):
        return words
    if len(words) == 1:
        return []
    middle = len(words) // 2
    found = await _of_one_token(count, words[:middle])
    return found + await _of_one_token(count, words[middle:])


async def _prompt_tokens(sender: Sender, target: Target, text: str) -> int:
    exchange = await _asked(sender, request_of(target, target.path, body_of(target, text, 1)))
    answer = exchange.answer
    if exchange.status != OK or answer is None:
        raise MachineError(
            f"load client: {target.url}: a first request was not answered:"
            f" {exchange.error or exchange.status}"
        )
    if answer.prompt_tokens is None:
        raise MachineError(
            f"load client: {target.url}: the answer to a first request has no usage; expected"
            " prompt_tokens, which tell how long prompts are"
        )
    return answer.prompt_tokens


async def _mismatch(sender: Sender, target: Target, used: tuple[str, int]) -> str | None:
    """Where tokenizer and usage count one text differently; a chat's template is no mismatch."""
    text, by_usage = used
    by_tokenizer = await count_tokens(sender, target, text)
    if by_tokenizer is None or by_tokenizer == by_usage:
        return None
    if target.api == CHAT and by_tokenizer < by_usage:
        return None
    return f"/tokenize counts {by_tokenizer} tokens in a text of which usage says {by_usage}"


async def _asked(sender: Sender, data: bytes) -> Exchange:
    """One request outside the load, and its end."""
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    exchange = Exchange(-1, data, lambda _: ended.set_result(None))
    sender.send(exchange)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            await asyncio.shield(ended)
    except TimeoutError:
        exchange.give_up(TIMEOUT, f"no answer within {_TIMEOUT_S:g} s", 0.0)
    return exchange


def _chosen(words: tuple[str, ...], count: int, skip: int) -> list[str]:
    return [words[(skip + 7 * place) % len(words)] for place in range(count)]
