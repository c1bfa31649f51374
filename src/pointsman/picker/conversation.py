"""One request as Envoy tells of it, part by part, and what is answered to each part.

    body mode              a head comes        a body comes                    the pick is told
    BUFFERED               goes on             whole, in one message           with the body
    FULL_DUPLEX_STREAMED   waits for its body  in pieces, given back at the    with the head, once
                                               end as they came                the body is whole
    any, without a body    is all there is     -                               with the head

A head is sent or not, as Envoy is told; without it the request is known by attributes. Then the
answer's head comes, and its body where Envoy is told to send it. The stream of messages lives as
long as the exchange does.
"""

from __future__ import annotations

from typing import Any

from pointsman.picker import heard, wire
from pointsman.picker.picks import Bounds, Pick, Picks, Refusal
from pointsman.picker.protocol import VIA_UPSTREAM
from pointsman.picker.replies import Replies
from pointsman.router.answers import failure, refusal
from pointsman.router.messages import Headers
from pointsman.router.relay import EVENT_STREAM

_PICKED_FOR = (wire.BUFFERED, wire.FULL_DUPLEX_STREAMED)
_READ = (wire.STREAMED, wire.BUFFERED, wire.FULL_DUPLEX_STREAMED)


class Conversation:
    """Takes the messages of one stream; ``max_body_bytes``: of a request's body.

    ``sees_answer``: whether Envoy will say anything of its answer; that it says nothing is then
    that there was none.
    """

    def __init__(
        self, picks: Picks, replies: Replies, max_body_bytes: int, *, sees_answer: bool = True
    ) -> None:
        self.is_over = False  # refused: nothing more is to be said
        self._picks = picks
        self._replies = replies
        self._max_body_bytes = max_body_bytes
        self._sees_answer = sees_answer
        self._has_begun = False
        self._request_mode = wire.BUFFERED
        self._answer_mode = wire.NONE
        self._bounds = Bounds()
        self._attributes: dict[str, str] = {}
        self._head: Headers | None = None
        self._body: bytes | bytearray = b""
        self._pick: Pick | None = None

    async def take(self, message: Any) -> list[bytes]:
        """What is answered to this message, perhaps nothing."""
        part: str | None = message.WhichOneof("request")
        if not self._has_begun:
            self._begin(message)
        if message.observability_mode:
            return []  # Envoy wants no answer; it has asked for no pick either
        if part == "request_headers":
            return await self._request_head(message.request_headers)
        if part == "request_body":
            return await self._request_body(message.request_body)
        if part == "request_trailers":
            return await self._request_trailers()
        if part == "response_headers":
            return self._answer_head(message)
        if part == "response_body":
            return self._answer_body(message.response_body)
        if part == "response_trailers":
            return self._answer_trailers()
        return []  # a part that is newer than we are

    def end(self) -> None:
        """The stream is over."""
        if self._pick is not None:
            self._pick.end()

    def _begin(self, message: Any) -> None:
        self._has_begun = True
        if message.HasField("protocol_config"):  # since Envoy 1.34, in the first message
            self._request_mode = message.protocol_config.request_body_mode
            self._answer_mode = message.protocol_config.response_body_mode
        reads_answer = self._answer_mode in _READ
        self._bounds = Bounds(heard.subset_of(message), self._sees_answer, reads_answer)
        self._attributes = heard.attributes_of(message)

    # The request.

    async def _request_head(self, head: Any) -> list[bytes]:
        self._head = heard.headers_of(head)
        if head.end_of_stream:
            return await self._picked("request_headers")
        if self._request_mode not in _PICKED_FOR:
            return self._refuse(_cannot_be_picked_for(self._request_mode))
        is_duplex = self._request_mode == wire.FULL_DUPLEX_STREAMED
        return [] if is_duplex else [self._replies.go_on("request_headers")]

    async def _request_body(self, body: Any) -> list[bytes]:
        if self._request_mode not in _PICKED_FOR:
            return self._refuse(_cannot_be_picked_for(self._request_mode))
        if len(self._body) + len(body.body) > self._max_body_bytes:
            return self._refuse(_too_large(self._max_body_bytes))
        if not self._body:
            self._body = body.body
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += body.body
        if self._request_mode == wire.BUFFERED:
            return await self._picked("request_body")
        return await self._picked_duplex(is_end=True) if body.end_of_stream else []

    async def _request_trailers(self) -> list[bytes]:
        """They end a body that has not said that it ended."""
        picked = [] if self._pick is not None else await self._picked_duplex(is_end=False)
        if self.is_over:
            return picked
        return [*picked, self._replies.go_on("request_trailers")]

    async def _picked_duplex(self, *, is_end: bool) -> list[bytes]:
        """The answer to the head, which has waited, and the body as it came."""
        if self._head is None:  # it was not sent, so the body carries the pick
            told = await self._picked("request_body")
            if self.is_over:
                return told
            first, *others = self._replies.pieces("request_body", self._body, is_end=is_end)
            told = [told[0] + first, *others]  # one message, which says both
        else:
            told = await self._picked("request_headers")
            if self.is_over:
                return told
            if self._body or is_end:
                told += self._replies.pieces("request_body", self._body, is_end=is_end)
        self._body = b""  # it has been given back
        return told

    async def _picked(self, part: str) -> list[bytes]:
        request = heard.request_of(self._head, self._attributes, self._body)
        picked = await self._picks.pick(request, self._bounds)
        if isinstance(picked, Refusal):
            return self._refuse(picked)
        self._pick = picked
        if self._request_mode == wire.BUFFERED:
            self._body = b""
        has_head = self._head is not None
        return [self._replies.goes_to(part, picked.destination, has_head=has_head)]

    def _refuse(self, refused: Refusal) -> list[bytes]:
        self.is_over = True
        headers = []
        if refused.request_id is not None:
            headers = [("x-pointsman-request-id", refused.request_id.encode())]
        return [self._replies.refusal(refused.answer, headers, f"pointsman_{refused.why}")]

    # The answer.

    def _answer_head(self, message: Any) -> list[bytes]:
        pick, head = self._pick, message.response_headers
        if pick is None:  # of a request that was not asked about
            return [self._replies.go_on("response_headers")]
        headers = heard.headers_of(head)
        status, details = heard.status_of(headers), heard.details_of(message)
        if status is not None:
            is_own = details is None or details == VIA_UPSTREAM
            pick.answered(status, heard.served_by(message), is_own=is_own)
        pick.streams(is_stream=_is_stream(headers))
        said = self._replies.go_on("response_headers", pick.headers())
        if head.end_of_stream:
            pick.is_whole()
        return [said]

    def _answer_body(self, body: Any) -> list[bytes]:
        if self._pick is not None:
            self._pick.body(body.body)
            if body.end_of_stream:
                self._pick.is_whole()
        if self._answer_mode == wire.FULL_DUPLEX_STREAMED:
            is_end = body.end_of_stream
            return self._replies.pieces("response_body", body.body, is_end=is_end)
        return [self._replies.go_on("response_body")]

    def _answer_trailers(self) -> list[bytes]:
        if self._pick is not None:
            self._pick.is_whole()
        return [self._replies.go_on("response_trailers")]


def _is_stream(headers: Headers) -> bool:
    return any(
        name == b"content-type" and value.lower().startswith(EVENT_STREAM)
        for name, value in headers
    )


def _cannot_be_picked_for(mode: int) -> Refusal:
    name = wire.MODES[mode] if mode < len(wire.MODES) else str(mode)
    message = (
        f"the gateway sends bodies to the endpoint picker in mode {name}; expected BUFFERED or"
        " FULL_DUPLEX_STREAMED"
    )
    return Refusal(failure(500, message, "unfit_body_mode"), "unfit_body_mode")


def _too_large(most: int) -> Refusal:
    return Refusal(
        refusal(413, f"the body is over {most} bytes", "body_too_large"), "body_too_large"
    )
