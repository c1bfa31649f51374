"""What a request asks of the fleet: its prompt as hashes, its session, its expected length.

The prompt's canonical bytes (roles, texts, tools in order; token ids as 4 bytes each) are cut
into blocks of 256 bytes. A block's hash covers the text up to its end. A token is taken to be
4 bytes: about right for English prose, low for code, high for Chinese (3 bytes a character).
"""

from __future__ import annotations

import hashlib
import os
import string
from dataclasses import dataclass
from typing import Annotated

import msgspec
import numpy as np
import xxhash

from pointsman.core.errors import InputError
from pointsman.dispatch.dispatcher import Question
from pointsman.dispatch.prefix_index import Chain
from pointsman.router.messages import ClientRequest
from pointsman.workload.workload import MAX_TOKENS

BYTES_A_TOKEN = 4
BLOCK_TOKENS = 64
BLOCK_BYTES = BLOCK_TOKENS * BYTES_A_TOKEN
MAX_BLOCKS_A_PROMPT = 512  # 32,768 tokens; what follows is not looked up
DEFAULT_OUTPUT_TOKENS = 256  # where a request sets no limit

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"

MAX_REQUEST_ID_CHARACTERS = 128
_PRINTABLE = frozenset(string.printable.encode()) - frozenset(string.whitespace.encode())

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
# -1: no limit, as llama.cpp understands it.
Limit = Annotated[int, msgspec.Meta(ge=-1, le=MAX_TOKENS)]


class _Message(msgspec.Struct):
    role: str
    content: str | list[msgspec.Raw] | None = None
    tool_calls: msgspec.Raw = msgspec.Raw()


class _Part(msgspec.Struct):
    text: str | None = None


class _Limits(msgspec.Struct):
    model: str | None = None
    user: str | None = None
    max_tokens: Limit | None = None
    max_completion_tokens: Limit | None = None
    stream: bool | None = None


class _Chat(_Limits, kw_only=True):
    messages: list[_Message]
    tools: msgspec.Raw = msgspec.Raw()


class _Completion(_Limits, kw_only=True):
    prompt: str | list[str | TokenId | list[TokenId]]


_CHAT = msgspec.json.Decoder(_Chat)
_COMPLETION = msgspec.json.Decoder(_Completion)
_PART = msgspec.json.Decoder(_Part)


@dataclass(frozen=True, slots=True)
class QuestionReader:
    """Makes Questions of requests; sessions become hashes under ``session_key``."""

    session_key: bytes

    def question(self, request: ClientRequest, request_id: str) -> Question:
        """What the request asks. Raises InputError where its body is not what its path wants."""
        path = request.path
        session = _text(request.header(b"x-session-id"))
        if not _is_read(request, path):
            return Question(
                request_id=request_id,
                path=path,
                output_tokens=DEFAULT_OUTPUT_TOKENS,
                session=self._hashed(session),
                unread_tokens=_tokens_of(request.body),
            )
        asked = _decoded(request.body, path)
        prompt = _chat_bytes(asked) if isinstance(asked, _Chat) else _prompt_bytes(asked.prompt)
        return Question(
            request_id=request_id,
            path=path,
            prompt_tokens=_tokens_of(prompt),
            output_tokens=_output_tokens(asked),
            chain=chain_of(prompt, asked.model or ""),
            session=self._hashed(session or asked.user),
            streams=bool(asked.stream),
        )

    def _hashed(self, session: str | None) -> str | None:
        if not session:
            return None
        text = session.encode("utf-8", "surrogatepass")
        return hashlib.blake2b(text, key=self.session_key, digest_size=8).hexdigest()


def request_id_of(request: ClientRequest) -> str:
    """The client's ``x-request-id``, else a new one.

    Raises InputError for an id that does not fit into a header and a log.
    """
    given = request.header(b"x-request-id")
    if given is None:
        return os.urandom(16).hex()
    if len(given) > MAX_REQUEST_ID_CHARACTERS or not _PRINTABLE.issuperset(given):
        raise InputError(
            f"x-request-id is not 1 to {MAX_REQUEST_ID_CHARACTERS} printable ASCII characters"
        )
    return given.decode("ascii")


def chain_of(prompt: bytes, model: str) -> Chain:
    """The hashes of the prompt's leading whole blocks; other models have other hashes."""
    view = memoryview(prompt)
    blocks = min(len(view) // BLOCK_BYTES, MAX_BLOCKS_A_PROMPT)
    above = xxhash.xxh3_64_intdigest(model.encode("utf-8", "surrogatepass"))
    hashes = []
    for start in range(0, blocks * BLOCK_BYTES, BLOCK_BYTES):
        above = xxhash.xxh3_64_intdigest(view[start : start + BLOCK_BYTES], above)
        hashes.append(above)
    return Chain(hashes, BLOCK_TOKENS)


def _is_read(request: ClientRequest, path: str) -> bool:
    plain = request.header(b"content-encoding") in (None, b"identity")
    return path in (CHAT, COMPLETIONS) and request.method == b"POST" and plain


def _decoded(body: bytes, path: str) -> _Chat | _Completion:
    try:
        return _CHAT.decode(body) if path == CHAT else _COMPLETION.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"the body of {path} cannot be read: {error}") from None


def _tokens_of(text: bytes) -> int:
    return -(-len(text) // BYTES_A_TOKEN)


def _output_tokens(asked: _Limits) -> int:
    for limit in (asked.max_completion_tokens, asked.max_tokens):
        if limit is not None and limit >= 0:
            return limit
    return DEFAULT_OUTPUT_TOKENS


def _chat_bytes(chat: _Chat) -> bytes:
    pieces = [bytes(chat.tools)]
    for message in chat.messages:
        pieces.append(message.role.encode("utf-8", "surrogatepass"))
        pieces.append(b"\n")
        pieces.extend(_content_pieces(message.content))
        pieces.append(bytes(message.tool_calls))
        pieces.append(b"\n")
    return b"".join(pieces)


def _content_pieces(content: str | list[msgspec.Raw] | None) -> list[bytes]:
    if content is None:
        return []
    if isinstance(content, str):
        return [content.encode("utf-8", "surrogatepass")]
    return [_part_bytes(part) for part in content]


def _part_bytes(part: msgspec.Raw) -> bytes:
    """A part's text; an image or a sound as it stands in the body."""
    try:
        text = _PART.decode(part).text
    except (msgspec.ValidationError, RecursionError) as error:
        raise InputError(f"a part of a message cannot be read: {error}") from None
    return bytes(part) if text is None else text.encode("utf-8", "surrogatepass")


def _prompt_bytes(prompt: str | list[str | int | list[int]]) -> bytes:
    if isinstance(prompt, str):
        return prompt.encode("utf-8", "surrogatepass")
    pieces = []
    for item in prompt:
        if isinstance(item, str):
            pieces.append(item.encode("utf-8", "surrogatepass"))
        else:
            pieces.append(np.array(item, dtype="<u4").tobytes())
    return b"".join(pieces)


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("latin-1")
