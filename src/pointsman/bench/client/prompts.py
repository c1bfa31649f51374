"""Prompts whose lengths in tokens and whose shared prefixes are the workload's.

A block's text is drawn from (seed, the block's name) by a hash that is the same in every process,
so equal blocks are equal text wherever they are made (vLLM's ``timed_trace`` goes by Python's
``hash()``, which is not). Behind the chain stands text of the request's own, as far as
``prompt_tokens`` (SGLang's loader leaves the traced length out). What the engine puts around a
prompt is taken off the front, so that the blocks of the trace end where its own do.

    tokens   | overhead, rest of block 0 | block 1 | last block, to prefix_tokens | own |
    words               |......................................................................|
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from pointsman.bench.client.tokenizer import Lengths
from pointsman.bench.client.words import text_of
from pointsman.core.errors import missing_field
from pointsman.workload.streams import stream
from pointsman.workload.workload import Workload

_KEPT_BLOCKS = 1_024
_DRAWN_AT_ONCE = 64


class Prompts:
    """The prompts of a workload; a function of (workload, lengths, seed)."""

    def __init__(self, workload: Workload, lengths: Lengths, seed: int = 0) -> None:
        _check(workload)
        self._workload = workload
        self._lengths = lengths
        self._seed = seed
        self._block_text = lru_cache(maxsize=_KEPT_BLOCKS)(self._drawn)

    def text(self, number: int) -> str:
        """The prompt of the request in that row."""
        parts = []
        skip = self._lengths.overhead_tokens
        for name, tokens in self._blocks(number):
            if tokens > skip:
                parts.append(self._block_text(name, tokens, skip))
            skip = max(0, skip - tokens)
        own_tokens = self._own_tokens(number)
        if own_tokens > skip or not parts:
            own = f"own {self._workload.names.request(number)}"
            parts.append(self._drawn(own, max(own_tokens, skip + 1), skip))
        return "".join(parts)

    def _own_tokens(self, number: int) -> int:
        return int(self._workload.prompt_tokens[number] - self._workload.prefix_tokens[number])

    def _blocks(self, number: int) -> list[tuple[str, int]]:
        """Names and tokens of the blocks of its chain."""
        workload = self._workload
        size, names = workload.block_size_tokens, workload.names.blocks
        ids = workload.chain(number).tolist()
        blocks = [(f"block {each if names is None else names[each]}", size) for each in ids]
        if blocks:
            before = size * (len(blocks) - 1)
            blocks[-1] = (blocks[-1][0], int(workload.prefix_tokens[number]) - before)
        return blocks

    def _drawn(self, name: str, tokens: int, skip: int) -> str:
        """The text of ``tokens`` tokens without its first ``skip``; longer ones begin the same."""
        words, characters = self._lengths.words, self._lengths.characters_a_token
        random = stream(self._seed, f"prompt {name}")
        if characters is None:
            drawn = random.integers(0, len(words), tokens)
            return text_of([words[place] for place in drawn[skip:].tolist()])
        return _of_characters(words, random, round((tokens - skip) * characters))


def _of_characters(words: tuple[str, ...], random: np.random.Generator, wanted: int) -> str:
    """Whole words, one at least, ending as near to that length as they can."""
    chosen: list[str] = []
    length = 0
    while True:
        for place in random.integers(0, len(words), _DRAWN_AT_ONCE).tolist():
            longer = length + 1 + len(words[place])
            if chosen and longer - wanted > wanted - length:
                return text_of(chosen)
            chosen.append(words[place])
            length = longer


def _check(workload: Workload) -> None:
    for name in ("prompt_tokens", "output_tokens"):
        absent = np.flatnonzero(getattr(workload, name) < 0)
        if absent.size:
            where = workload.source.place(int(absent[0]))
            raise missing_field(where, name, "an integer >= 0: engines are sent tokens, not times")
