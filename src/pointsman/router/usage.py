"""Reads token counts out of an answer that passes by, without holding it up.

Both placements of ``usage`` are read: on the last chunk with choices, and on a chunk without
(source: streams of llama.cpp and vLLM). Where it is missing, llama.cpp's ``timings`` serve.
"""

from __future__ import annotations

import re

import msgspec

from pointsman.dispatch.record import NO_USAGE, TimeMs, Usage
from pointsman.workload.workload import MAX_TOKENS

JSON_LIMIT_BYTES = 1 << 20  # of a whole answer; a longer one is not read
TAIL_BYTES = 1 << 14  # of a stream, or twice as much: its counts stand at its end

# An event that is an error, which engines send within an answer of 200, with [DONE] after it. In
# generated text the quotation marks would be escaped. Source: vLLM 0.32, run (an engine that dies
# under a stream), vllm/entrypoints/generate/base/serving.py create_streaming_error_response.
_ERROR_EVENT = re.compile(rb'^data:\s*\{\s*"error"\s*:\s*[{"]', re.MULTILINE)

# A generated token of any channel; a chunk with only a role, or with empty text, is none.
_TOKEN = re.compile(rb'"(?:content|text|reasoning_content|reasoning|arguments)"\s*:\s*"[^"]')


class _Details(msgspec.Struct):
    cached_tokens: int | None = None


class _Counts(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Timings(msgspec.Struct):
    cache_n: int | None = None
    prompt_n: int | None = None  # without the cached ones
    predicted_n: int | None = None


class _Counted(msgspec.Struct):
    usage: _Counts | None = None
    timings: _Timings | None = None


class _Took(msgspec.Struct):
    prompt_ms: TimeMs | None = None


class _Prefilled(msgspec.Struct):
    timings: _Took | None = None


_COUNTED, _PREFILLED = msgspec.json.Decoder(_Counted), msgspec.json.Decoder(_Prefilled)


class ResponseTap:
    """Sees an answer's body piece by piece; ``stream`` says that it is server-sent events."""

    __slots__ = ("_is_cut", "_kept", "_most", "_stream", "saw_token")

    def __init__(self, *, stream: bool) -> None:
        self.saw_token = False
        self._stream = stream
        self._most = 2 * TAIL_BYTES if stream else JSON_LIMIT_BYTES
        self._kept: bytes | bytearray = b""
        self._is_cut = False

    def feed(self, piece: bytes) -> None:
        """Look at the next piece."""
        if self._stream and not self.saw_token:
            self.saw_token = _TOKEN.search(piece) is not None
        if not self._kept:
            self._kept = piece  # most answers that are no streams have one
        elif isinstance(self._kept, bytearray):
            self._kept += piece
        else:
            self._kept = bytearray(self._kept) + piece
        if len(self._kept) > self._most:
            self._kept = bytearray(self._kept[-TAIL_BYTES:])
            self._is_cut = True

    @property
    def ends_an_event(self) -> bool:
        """Whether the stream stands between two events."""
        end = self._end
        return not end or end.endswith((b"\n\n", b"\r\n\r\n", b"\r\r"))

    @property
    def is_done(self) -> bool:
        """Whether the stream has said ``[DONE]``."""
        return b"data: [DONE]" in self._end or b"data:[DONE]" in self._end

    @property
    def tells_an_error(self) -> bool:
        """Whether the stream's end has an event that is an error."""
        may_be = self._stream and b'"error"' in self._kept
        return may_be and _ERROR_EVENT.search(self._kept) is not None

    @property
    def _end(self) -> bytes:
        return bytes(self._kept[-64:])

    def usage(self) -> Usage:
        """The counts, once the answer has ended; unknown where it gave none."""
        if not self._stream:
            return NO_USAGE if self._is_cut else _usage_of(self._kept)
        for line in reversed(bytes(self._kept).splitlines()):
            if line.startswith(b"data:") and (b'"usage"' in line or b'"timings"' in line):
                found = _usage_of(line[5:])
                if found != NO_USAGE:
                    return found
        return NO_USAGE


def prefill_ms_of(answer: bytes) -> float | None:
    """How long llama.cpp says that a prefill took it, without its wait; None: nobody says."""
    try:
        timings = _PREFILLED.decode(answer).timings
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return None if timings is None else timings.prompt_ms


def _usage_of(text: bytes | bytearray) -> Usage:
    try:
        counted = _COUNTED.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return NO_USAGE  # not an answer that we know
    usage, timings = counted.usage, counted.timings
    if usage is not None:
        details = usage.prompt_tokens_details or _Details()
        cached = details.cached_tokens
        if cached is None and timings is not None:
            cached = timings.cache_n
        return _possible(usage.prompt_tokens, usage.completion_tokens, cached)
    if timings is None or timings.prompt_n is None or timings.prompt_n < 0:
        return NO_USAGE
    prompt = timings.prompt_n + max(0, timings.cache_n or 0)
    return _possible(prompt, timings.predicted_n, timings.cache_n)


def _possible(prompt: int | None, output: int | None, cached: int | None) -> Usage:
    """The counts, unknown where no request can have them."""
    known = [
        n if n is not None and 0 <= n <= MAX_TOKENS else None for n in (prompt, output, cached)
    ]
    return Usage(*known)
