"""One answer while it comes in: what each token-bearing chunk brought, and when.

A generated token is non-empty text of any channel, a count that has grown, or token ids; a chunk
with only a role is none (vllm-project/vllm PR 3768, kubernetes-sigs/inference-perf#559). Where the
first chunk with text says how many tokens there are so far, all do, and a chunk brought as many as
the count has grown by; else the only count is the total, which some engines put on an empty chunk.
"""

from __future__ import annotations

import re
from array import array

import msgspec

from pointsman.bench.client.chunks import Choice, Chunk, chunk_of, error_text
from pointsman.bench.client.events import Events
from pointsman.bench.client.rows import TokensFrom

_DONE = b"[DONE]"
_WHOLE_BYTES = 1 << 22  # of a body that is no stream; what is beyond is not looked at
_BROKEN_OFF = ("abort", "error")  # as a finish_reason: the engine gave up


class Answer:
    """What is known so far. ``feed`` gets pieces of the body with the instant of their read."""

    __slots__ = (
        "_body",
        "_events",
        "_last_token_ms",
        "_running",
        "cached_tokens",
        "chunks",
        "engine_decode_ms",
        "engine_prefill_ms",
        "error",
        "finish_reason",
        "first_chunk_tokens",
        "first_text_ms",
        "first_token_ms",
        "gap_tokens",
        "gaps_ms",
        "has_running_counts",
        "is_done",
        "is_stream",
        "last_ms",
        "output_tokens",
        "prompt_tokens",
        "texts",
        "tokens_from",
    )

    def __init__(self, *, is_stream: bool) -> None:
        self.is_stream = is_stream
        self.first_token_ms: float | None = None
        self.first_text_ms: float | None = None
        self.last_ms: float | None = None
        self.prompt_tokens: int | None = None
        self.output_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.tokens_from: TokensFrom | None = None
        self.engine_prefill_ms: float | None = None
        self.engine_decode_ms: float | None = None
        self.first_chunk_tokens: int | None = None
        self.finish_reason: str | None = None
        self.error: str | None = None
        self.is_done = False  # [DONE] was said
        self.chunks = 0
        self.has_running_counts = False
        self.gaps_ms = array("d")  # before each token-bearing chunk but the first
        self.gap_tokens = array("q")  # that came after it; only where there are running counts
        self.texts: list[str] = []
        self._running = 0
        self._last_token_ms = 0.0
        self._events = Events()
        self._body = bytearray()

    def feed(self, piece: bytes, at_ms: float) -> None:
        """Take the next piece of the body, read at that instant."""
        if self.is_stream:
            for data in self._events.feed(piece):
                self._take(data, at_ms)
        elif len(self._body) < _WHOLE_BYTES:
            self._body += piece

    def end(self, at_ms: float) -> None:
        """The body was whole."""
        if self.is_stream:
            for data in self._events.last():
                self._take(data, at_ms)
        elif self._body:
            self._take_whole(at_ms)
        if self.output_tokens is None and self.chunks:
            self.output_tokens, self.tokens_from = self.chunks, "chunks"

    @property
    def body(self) -> bytes:
        """All of a body that is no stream."""
        return bytes(self._body)

    @property
    def is_coalesced(self) -> bool:
        """Whether several tokens came, and all in one read."""
        several = self.chunks > 1 or (self.output_tokens or 0) > 1
        return several and self.chunks > 0 and self.first_token_ms == self._last_token_ms

    @property
    def is_complete(self) -> bool:
        """Whether the generation came to an end of its own, as far as the body says."""
        if not self.is_stream:
            return True
        ended = self.is_done or self.finish_reason is not None
        return ended and self.finish_reason not in _BROKEN_OFF

    def _take(self, data: bytes, at_ms: float) -> None:
        if data == _DONE:
            self.is_done = True
            return
        try:
            chunk = chunk_of(data)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            self.error = self.error or f"an event that cannot be read: {error}"
            return
        if chunk.error is not None:
            self.error = self.error or error_text(chunk.error)
            return
        if chunk.choices:
            self._take_choice(chunk, chunk.choices[0], at_ms)
        self._take_counts(chunk)

    def _take_choice(self, chunk: Chunk, choice: Choice, at_ms: float) -> None:
        new = self._new_tokens(chunk, choice)
        words, reasoning = choice.words, choice.reasoning
        self.last_ms = at_ms
        self.finish_reason = choice.finish_reason or self.finish_reason
        if words:
            self.texts.append(words)
            if self.first_text_ms is None:
                self.first_text_ms = at_ms
        if reasoning:
            self.texts.append(reasoning)
        if (words or reasoning) if new is None else new > 0:
            self._take_tokens(new, at_ms)
        elif self.first_token_ms is None and (words or reasoning):
            self.first_token_ms = at_ms  # text before any count has grown

    def _new_tokens(self, chunk: Chunk, choice: Choice) -> int | None:
        """How many tokens the chunk brought; None where it does not say."""
        if choice.token_ids:
            self.has_running_counts = True
            return len(choice.token_ids)
        count = _running_count(chunk)
        is_decided = self.chunks > 0 or self.first_token_ms is not None
        if not is_decided and (count or choice.words or choice.reasoning):
            self.has_running_counts = count is not None
        if not self.has_running_counts or count is None:
            return None
        new = count - self._running
        self._running = count
        return new

    def _take_tokens(self, new: int | None, at_ms: float) -> None:
        self.chunks += 1
        if self.chunks == 1:
            self.first_token_ms = self.first_token_ms or at_ms
            self.first_chunk_tokens = new
        else:
            self.gaps_ms.append(at_ms - self._last_token_ms)
            if new is None:
                self.has_running_counts = False
            else:
                self.gap_tokens.append(new)
        self._last_token_ms = at_ms

    def _take_counts(self, chunk: Chunk) -> None:
        usage, timings = chunk.usage, chunk.timings
        if usage is not None and usage.completion_tokens is not None:
            self.output_tokens, self.tokens_from = usage.completion_tokens, "usage"
            self.prompt_tokens = usage.prompt_tokens
            if usage.cached_tokens is not None:
                self.cached_tokens = usage.cached_tokens
        elif timings is not None and self.tokens_from != "usage":
            if timings.predicted_n is not None:
                self.output_tokens, self.tokens_from = timings.predicted_n, "timings"
            if timings.prompt_n is not None:
                self.prompt_tokens = timings.prompt_n + (timings.cache_n or 0)
        if timings is not None:
            self.engine_prefill_ms, self.engine_decode_ms = timings.prompt_ms, timings.predicted_ms
            if self.cached_tokens is None:
                self.cached_tokens = timings.cache_n

    def _take_whole(self, at_ms: float) -> None:
        """A JSON answer in one piece: counts, and no instants of tokens."""
        try:
            chunk = chunk_of(self._body)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self.error = f"not JSON: {_shown(self._body)}"
            return
        if chunk.error is not None:
            self.error = error_text(chunk.error)
            return
        if chunk.choices:
            self.finish_reason = chunk.choices[0].finish_reason
            self.texts.append(chunk.choices[0].words)
            self.last_ms = at_ms
        self._take_counts(chunk)


def _running_count(chunk: Chunk) -> int | None:
    if chunk.usage is not None and chunk.usage.completion_tokens is not None:
        return chunk.usage.completion_tokens
    return chunk.timings.predicted_n if chunk.timings is not None else None


def _shown(body: bytes | bytearray) -> str:
    text = re.sub(r"\s+", " ", bytes(body[:200]).decode("utf-8", "replace"))
    return text if len(body) <= 200 else f"{text}..."
