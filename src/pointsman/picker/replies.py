"""What the picker says to Envoy, as the bytes of its messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pointsman.picker.protocol import DESTINATION, DESTINATION_NAMESPACE
from pointsman.picker.wire import OVERWRITE_IF_EXISTS_OR_ADD, message
from pointsman.router.answers import Answer

Headers = Iterable[tuple[str, bytes]]

# Envoy refuses pieces of 64 KiB and more. Source: its ext_proc filter, FULL_DUPLEX_STREAMED.
PIECE_BYTES = 62 << 10

MOST_KEPT = 4096  # destinations: each is a replica and those that come next


class Replies:
    """Makes the messages; one for each process, for what is said again and again is kept.

    All are bytes, as they go over the wire. Two of them in a row are one message that says both
    (source: protobuf.dev, "Encoding", "Last One Wins").
    """

    def __init__(self) -> None:
        self._response = message("ProcessingResponse")
        self._destinations: dict[tuple[str, str, bool], bytes] = {}
        self._plain: dict[str, bytes] = {}

    def goes_to(self, part: str, destination: str, *, has_head: bool) -> bytes:
        """The answer to a request's head or body, ``part``: where it is to be sent.

        ``has_head``: its headers can still be changed, for Envoy has sent them.
        """
        asked = (part, destination, has_head)
        kept = self._destinations.get(asked)
        if kept is None:
            if len(self._destinations) >= MOST_KEPT:
                self._destinations.clear()
            kept = self._destinations[asked] = self._goes_to(*asked)
        return kept

    def _goes_to(self, part: str, destination: str, has_head: bool) -> bytes:
        reply = self._response()
        answered = getattr(reply, part)
        answered.SetInParent()
        if has_head:
            said = ((DESTINATION, destination.encode("ascii")),)
            _set(answered.response.header_mutation, said)
        told = reply.dynamic_metadata.fields[DESTINATION_NAMESPACE].struct_value
        told.fields[DESTINATION].string_value = destination
        return _wired(reply)

    def go_on(self, part: str, headers: Headers = ()) -> bytes:
        """The answer to any part of a message that is let through, with these headers added."""
        if not headers:
            return self._goes_on(part)
        reply = self._response()
        _set(getattr(reply, part).response.header_mutation, headers)
        return _wired(reply)

    def _goes_on(self, part: str) -> bytes:
        kept = self._plain.get(part)
        if kept is None:
            reply = self._response()
            getattr(reply, part).SetInParent()
            kept = self._plain[part] = _wired(reply)
        return kept

    def pieces(self, part: str, body: bytes | bytearray, *, is_end: bool) -> list[bytes]:
        """A body given back as it came, where Envoy sends on only what it is given."""
        starts = range(0, max(1, len(body)), PIECE_BYTES)
        return [
            self._piece(part, bytes(body[start : start + PIECE_BYTES]), is_end=is_end and is_last)
            for start in starts
            for is_last in (start == starts[-1],)
        ]

    def _piece(self, part: str, body: bytes, *, is_end: bool) -> bytes:
        reply = self._response()
        mutation = getattr(reply, part).response.body_mutation
        mutation.streamed_response.SetInParent()
        mutation.streamed_response.body = body
        mutation.streamed_response.end_of_stream = is_end
        return _wired(reply)

    def refusal(self, answer: Answer, headers: Headers, why: str) -> bytes:
        """Envoy answers the client itself, with this; ``why`` is for its own log."""
        reply = self._response()
        immediate = reply.immediate_response
        immediate.status.code = answer.status
        immediate.body = answer.body
        immediate.details = why
        ours = [(name.decode("ascii"), value) for name, value in (answer.kind, *answer.headers)]
        _set(immediate.headers, [*ours, *headers])
        return _wired(reply)


def _wired(reply: Any) -> bytes:
    wired: bytes = reply.SerializeToString()
    return wired


def _set(mutation: Any, headers: Headers) -> None:
    for name, value in headers:
        option = mutation.set_headers.add()
        option.header.key = name
        option.header.raw_value = value
        option.append_action = OVERWRITE_IF_EXISTS_OR_ADD
