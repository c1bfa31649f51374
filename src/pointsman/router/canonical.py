"""A prompt's canonical bytes: what an engine would render, as far as it decides about a prefix.

    0xFF tools 0xFE JSON                      of the tools, spaces and escapes normalised
    0xFF role 0xFE field content ...          of each message, in order
    0xFD                                      between the parts of a content

These bytes are in no UTF-8 text, so that no text can look like the start of another message. A
token id is 4 bytes. An image, a sound or a film is its digest, wherever it stood in the body,
repeated to the length of the tokens that it is taken for.
"""

from __future__ import annotations

from typing import cast

import msgspec
import numpy as np
import xxhash

from pointsman.core.errors import InputError

BYTES_A_TOKEN = 4
# What a picture of 900 x 900 is at 28 x 28 pixels a token (source: Qwen2-VL, arXiv:2409.12191,
# section 2.1); other models and sizes take some 85 to 4,000.
MEDIA_TOKENS = 1024

_START, _FIELD, _PART = b"\xff", b"\xfe", b"\xfd"
_MEDIA = ("image", "audio", "video", "file")
NONE = msgspec.Raw()  # what was not there
_NOTHING = (b"", b"null", b"[]")


class CanonicalBytes:
    """The first ``room`` bytes in ``kept``, and the length of all of them.

    Nothing beyond the room is copied: a prompt of megabytes costs what its beginning costs.
    """

    def __init__(self, room: int) -> None:
        self.kept = bytearray()
        self.length = 0
        self._room = room

    @property
    def tokens(self) -> int:
        """What the prompt is taken to be."""
        return -(-self.length // BYTES_A_TOKEN)

    def add(self, data: bytes) -> None:
        """Append bytes."""
        size = len(data)
        self.length += size
        free = self._room - len(self.kept)
        if size <= free:
            self.kept += data
        elif free > 0:
            self.kept += data[:free]

    def add_text(self, text: str) -> None:
        """Append a text in UTF-8."""
        free = self._room - len(self.kept)
        if text.isascii() and len(text) > free:
            self.length += len(text)
            self.kept += text[:free].encode("ascii")
        else:
            self.add(text.encode("utf-8", "surrogatepass"))

    def add_ids(self, ids: list[int]) -> None:
        """Append token ids."""
        free = max(0, self._room - len(self.kept))
        data = np.array(ids[: -(-free // BYTES_A_TOKEN)], dtype="<u4").tobytes()
        self.kept += data[:free]
        self.length += len(ids) * BYTES_A_TOKEN

    def add_json(self, value: msgspec.Raw) -> None:
        """Append JSON without its spaces and with its escapes normalised."""
        try:
            self.add(msgspec.json.encode(msgspec.json.decode(value)))
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise InputError(f"a tool or a tool call cannot be read: {error}") from None

    def add_media(self, part: msgspec.Raw) -> None:
        """Append what stands for a part that is no text."""
        digest = xxhash.xxh3_128_digest(memoryview(part))
        self.add(digest * (MEDIA_TOKENS * BYTES_A_TOKEN // len(digest)))


class Message(msgspec.Struct):
    """One of a chat's messages, as far as engines render it."""

    role: str
    content: str | list[msgspec.Raw] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: msgspec.Raw = NONE


class _Part(msgspec.Struct):
    type: str | None = None
    text: str | None = None


Prompt = str | list[str | int | list[int]]

_PARTS = msgspec.json.Decoder(str | _Part)


def add_chat(out: CanonicalBytes, tools: msgspec.Raw, messages: list[Message]) -> None:
    """Append a chat. Raises InputError for a part that cannot be read."""
    if tools is not NONE and memoryview(tools) not in _NOTHING:
        out.add(_START + b"tools" + _FIELD)
        out.add_json(tools)
    for message in messages:
        _add_message(out, message)


def add_prompt(out: CanonicalBytes, prompt: Prompt) -> None:
    """Append a completion's prompt; of several, one after the other."""
    if isinstance(prompt, str):
        out.add_text(prompt)
        return
    if set(map(type, prompt)) == {int}:
        out.add_ids(cast("list[int]", prompt))
        return
    for number, item in enumerate(prompt):
        out.add(_START if number else b"")
        if isinstance(item, str):
            out.add_text(item)
        else:
            out.add_ids([item] if isinstance(item, int) else item)


def _add_message(out: CanonicalBytes, message: Message) -> None:
    start = _START + message.role.encode("utf-8", "surrogatepass")
    if message.name is None and message.reasoning_content is None:
        out.add(start + _FIELD)
    else:
        out.add(start)
        _add_fields(out, message)
    if isinstance(message.content, str):
        out.add_text(message.content)
    elif message.content is not None:
        for number, part in enumerate(message.content):
            out.add(_PART if number else b"")
            _add_part(out, part)
    if message.tool_calls is not NONE and memoryview(message.tool_calls) not in _NOTHING:
        out.add(_FIELD + b"calls")
        out.add_json(message.tool_calls)


def _add_fields(out: CanonicalBytes, message: Message) -> None:
    """Its name, its reasoning, and the start of its content."""
    if message.name is not None:
        out.add(_FIELD + b"name")
        out.add_text(message.name)
    if message.reasoning_content is not None:
        out.add(_FIELD + b"reasoning")
        out.add_text(message.reasoning_content)
    out.add(_FIELD)


def _add_part(out: CanonicalBytes, raw: msgspec.Raw) -> None:
    try:
        part = _PARTS.decode(raw)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InputError(f"a part of a message cannot be read: {error}") from None
    if isinstance(part, str):
        out.add_text(part)
    elif part.text is not None:
        out.add_text(part.text)
    elif part.type is None or any(kind in part.type for kind in _MEDIA):
        out.add_media(raw)
    else:
        out.add_json(raw)
