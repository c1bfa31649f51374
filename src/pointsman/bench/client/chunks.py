"""One chunk of an OpenAI-compatible stream, as vLLM, SGLang and llama.cpp write them.

                     vLLM                      SGLang                   llama.cpp
    usage            a chunk without choices   the same                 the last chunk with choices
                                                                        (chat: one without)
    running count    usage in every chunk, by continuous_usage_stats    timings in every chunk,
                                                                        by timings_per_token
    finish_reason    on the last token         completions: the same    a chunk of its own
                                               chat: a chunk of its own
    reasoning        delta.reasoning           delta.reasoning_content  delta.reasoning_content

Other keys are ignored. Sources: streams of vLLM 0.32 and llama.cpp as they were recorded
(tests/bench/client/streams); sgl-project/sglang ``python/sglang/srt/entrypoints/openai``
(``serving_completions.py``, ``serving_chat.py``, ``usage_processor.py``).
"""

from __future__ import annotations

from typing import Any

import msgspec

_SHOWN_CHARACTERS = 200


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | None = None


class _ToolCall(msgspec.Struct, gc=False):
    function: _Function | None = None


class Delta(msgspec.Struct, gc=False):
    """What a chat chunk adds."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[_ToolCall] | None = None


class Choice(msgspec.Struct, gc=False):
    """What a chunk adds; ``text`` of a completion, ``delta`` of a chat, ``message`` of a whole."""

    text: str | None = None
    delta: Delta | None = None
    message: Delta | None = None
    token_ids: list[int] | None = None
    finish_reason: str | None = None

    @property
    def words(self) -> str:
        """What was generated that is no reasoning: text, or what a tool is called with."""
        if self.text:
            return self.text
        delta = self.delta or self.message
        if delta is None:
            return ""
        return delta.content or _called(delta.tool_calls) or ""

    @property
    def reasoning(self) -> str:
        """What was generated as reasoning."""
        delta = self.delta or self.message
        return (delta.reasoning_content or delta.reasoning or "") if delta is not None else ""


class _Details(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class Counts(msgspec.Struct, gc=False):
    """``usage``."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None

    @property
    def cached_tokens(self) -> int | None:
        """Of the prompt."""
        return self.prompt_tokens_details.cached_tokens if self.prompt_tokens_details else None


class Timings(msgspec.Struct, gc=False):
    """llama.cpp's; ``prompt_n`` is without the cached tokens.

    ``prompt_ms`` runs from when a slot begins with the prompt to the first token, ``predicted_ms``
    from there to the last one; other slots' tokens in the same batches are in both.
    """

    cache_n: int | None = None
    prompt_n: int | None = None
    prompt_ms: float | None = None
    predicted_n: int | None = None
    predicted_ms: float | None = None


class Chunk(msgspec.Struct, gc=False):
    """A chunk of a stream, or a whole answer."""

    choices: list[Choice] = []
    usage: Counts | None = None
    timings: Timings | None = None
    error: Any = None


chunk_of = msgspec.json.Decoder(Chunk).decode


def error_text(error: object) -> str:
    """What an error of an answer says, in one line."""
    if isinstance(error, dict):
        error = error.get("message") or error
    text = " ".join(str(error).split())
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _called(calls: list[_ToolCall] | None) -> str:
    functions = [call.function for call in calls or () if call.function is not None]
    return "".join((each.name or "") + (each.arguments or "") for each in functions)
