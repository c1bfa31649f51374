"""What a request asks of the fleet: its prompt as hashes, its session, its expected length.

The prompt's canonical bytes (canonical.py) are cut into blocks of 256 bytes. A block's hash covers
the text up to its end. A token is taken to be 4 bytes: about right for English prose, low for code,
high for Chinese (3 bytes a character).
"""

from __future__ import annotations

import hashlib
import random
import re
import string
from dataclasses import dataclass, field
from typing import Annotated

import msgspec
import xxhash

from pointsman.core.errors import InputError, wrong_value
from pointsman.dispatch.dispatcher import Question
from pointsman.dispatch.prefix_index import Chain
from pointsman.router.canonical import (
    BYTES_A_TOKEN,
    NONE,
    CanonicalBytes,
    Message,
    add_chat,
    add_prompt,
)
from pointsman.router.messages import ClientRequest
from pointsman.workload.workload import MAX_TOKENS

BLOCK_TOKENS = 64
BLOCK_BYTES = BLOCK_TOKENS * BYTES_A_TOKEN
MAX_BLOCKS_A_PROMPT = 512  # 32,768 tokens; what follows is not looked up
DEFAULT_OUTPUT_TOKENS = 256  # where a request sets no limit

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
READ_PATHS = frozenset((CHAT, COMPLETIONS))

DEFAULT_SESSION_HEADER = "x-session-id"
# Source: RFC 9110, section 5.6.2.
_HEADER_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]{1,128}")

MAX_REQUEST_ID_CHARACTERS = 128
_IDS = random.Random()  # seeded by the system; an id is no secret
_PRINTABLE = frozenset(string.printable.encode()) - frozenset(string.whitespace.encode())

TokenId = Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
# -1: no limit, as llama.cpp understands it.
Limit = Annotated[int, msgspec.Meta(ge=-1, le=MAX_TOKENS)]


class _Named(msgspec.Struct):
    model: str | None = None


class _Limits(_Named):
    cache_salt: str | None = None
    user: str | None = None
    max_tokens: Limit | None = None
    max_completion_tokens: Limit | None = None
    stream: bool | None = None


class _Chat(_Limits, kw_only=True):
    messages: list[Message]
    tools: msgspec.Raw = NONE


class _Completion(_Limits, kw_only=True):
    prompt: str | list[str | TokenId | list[TokenId]]


_NAMED = msgspec.json.Decoder(_Named)
_CHAT = msgspec.json.Decoder(_Chat)
_COMPLETION = msgspec.json.Decoder(_Completion)


@dataclass(frozen=True, slots=True)
class QuestionReader:
    """Makes Questions of requests; sessions become hashes under ``session_key``.

    A session is what the header ``session_header`` says, in lower case; without it, where
    ``session_from_user``, the body's ``user``. Raises InputError for what is no header's name.
    """

    session_key: bytes
    session_header: str = DEFAULT_SESSION_HEADER
    session_from_user: bool = False
    _header: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not _HEADER_NAME.fullmatch(self.session_header):
            wanted = "a header's name in lower case"
            raise wrong_value("sessions", "header", self.session_header, wanted)
        object.__setattr__(self, "_header", self.session_header.encode("ascii"))

    def question(self, request: ClientRequest, request_id: str) -> Question:
        """What the request asks. Raises InputError where its body is not what its path wants."""
        path = request.path
        session = request.fields.get(self._header)
        if not _is_read(request, path):
            return Question(
                request_id=request_id,
                path=path,
                output_tokens=DEFAULT_OUTPUT_TOKENS,
                session=self._hashed(session),
                unread_tokens=-(-len(request.body) // BYTES_A_TOKEN),
                model=_model_of(request),
            )
        asked = _decoded(request.body, path)
        if session is None and self.session_from_user and asked.user:
            session = asked.user.encode("utf-8", "surrogatepass")
        prompt = _canonical(asked)
        return Question(
            request_id=request_id,
            path=path,
            prompt_tokens=prompt.tokens,
            output_tokens=_output_tokens(asked),
            chain=chain_of(prompt.kept, asked.model or "", asked.cache_salt or ""),
            session=self._hashed(session),
            streams=bool(asked.stream),
            model=asked.model,
        )

    def _hashed(self, session: bytes | None) -> str | None:
        if session is None:
            return None
        return hashlib.blake2b(session, key=self.session_key, digest_size=8).hexdigest()


def request_id_of(request: ClientRequest) -> str:
    """The client's ``x-request-id``, else a new one.

    Raises InputError for an id that does not fit into a header and a log.
    """
    given = request.header(b"x-request-id")
    if given is None:
        return f"{_IDS.getrandbits(128):032x}"
    if len(given) > MAX_REQUEST_ID_CHARACTERS or not _PRINTABLE.issuperset(given):
        raise InputError(
            f"x-request-id is not 1 to {MAX_REQUEST_ID_CHARACTERS} printable ASCII characters"
        )
    return given.decode("ascii")


def chain_of(prompt: bytes | bytearray, model: str, salt: str = "") -> Chain:
    """The hashes of the prompt's leading whole blocks; other models have other hashes.

    So have other salts, by which clients of vLLM keep their prefixes apart (source: vLLM's
    documentation, "Automatic Prefix Caching", cache isolation).
    """
    view = memoryview(prompt)
    blocks = min(len(view) // BLOCK_BYTES, MAX_BLOCKS_A_PROMPT)
    above = xxhash.xxh3_64_intdigest(model.encode("utf-8", "surrogatepass"))
    if salt:
        above = xxhash.xxh3_64_intdigest(salt.encode("utf-8", "surrogatepass"), above)
    hashes = []
    for start in range(0, blocks * BLOCK_BYTES, BLOCK_BYTES):
        above = xxhash.xxh3_64_intdigest(view[start : start + BLOCK_BYTES], above)
        hashes.append(above)
    return Chain(hashes, BLOCK_TOKENS)


def _is_read(request: ClientRequest, path: str) -> bool:
    if path not in READ_PATHS or request.method != b"POST":
        return False
    return request.fields.get(b"content-encoding", b"identity") == b"identity"


def _model_of(request: ClientRequest) -> str | None:
    """The model that a body names whose prompt is not read; None where it is no such JSON."""
    kind = request.header(b"content-type") or b""
    if not kind.lower().startswith(b"application/json"):
        return None
    try:
        return _NAMED.decode(request.body).model
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _decoded(body: bytes | bytearray, path: str) -> _Chat | _Completion:
    try:
        return _CHAT.decode(body) if path == CHAT else _COMPLETION.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"the body of {path} cannot be read: {error}") from None


def _canonical(asked: _Chat | _Completion) -> CanonicalBytes:
    prompt = CanonicalBytes(MAX_BLOCKS_A_PROMPT * BLOCK_BYTES)
    if isinstance(asked, _Chat):
        add_chat(prompt, asked.tools, asked.messages)
    else:
        add_prompt(prompt, asked.prompt)
    return prompt


def _output_tokens(asked: _Limits) -> int:
    for limit in (asked.max_completion_tokens, asked.max_tokens):
        if limit is not None and limit >= 0:
            return limit
    return DEFAULT_OUTPUT_TOKENS
