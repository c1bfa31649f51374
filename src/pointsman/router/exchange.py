"""One request through the router.

client.py     bytes -> ClientRequest (incoming.py), one after the other
exchange.py   this file: what happens to it, in order
prompt.py     ClientRequest -> Question
admission.py  Question -> Place: now, or after a wait; membership.py says which replicas may be
dispatch/dispatcher.py   Question -> Ticket: the policy's choice, accounted and logged
pool.py, upstream.py     request to the replica;  relay.py  its answer to the client
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from pointsman.core.errors import InputError
from pointsman.dispatch.dispatcher import Ending
from pointsman.dispatch.record import ERROR, RETRIED
from pointsman.router.admission import Admission, Place
from pointsman.router.answers import Answer, failure, refusal
from pointsman.router.asked import Asked, RefusedError
from pointsman.router.client import ClientConnection
from pointsman.router.flow import Signal
from pointsman.router.membership import Replica
from pointsman.router.messages import ClientRequest, all_but, head_bytes, passing
from pointsman.router.models import ModelTable, is_list
from pointsman.router.prompt import READ_PATHS, QuestionReader, request_id_of
from pointsman.router.relay import Relay
from pointsman.router.status import OWN_PATHS, OwnPages
from pointsman.router.upstream import (
    LostError,
    OutOfFilesError,
    ReplicaAddress,
    ReplicaError,
    StaleConnectionError,
    UnreachableError,
    Upstream,
)

_OURS = all_but(b"host", b"content-length", b"expect", b"x-request-id")

# Safe to send twice. Source: RFC 9110, section 9.2.1.
_SAFE = frozenset((b"GET", b"HEAD", b"OPTIONS"))

_SERVER_ERROR = 500

# Of a request that the router itself could not serve.
_FAILED = Ending(ERROR, http_status=500, error="router_error")


class Call(msgspec.Struct, eq=False):
    """One request that is being served."""

    request: ClientRequest
    request_id: bytes
    client: ClientConnection
    asked: Asked
    attempts: int = 0
    retries: int = 0


# Gets the request to whom the choice says, and the answer into the relay. Raises ReplicaError.
Forward = Callable[[Call, Place, Relay], Awaitable[None]]


class Exchange:
    """Serves requests: a choice for each attempt, forwarded, streamed back and accounted."""

    def __init__(
        self,
        admission: Admission,
        reader: QuestionReader,
        models: ModelTable,
        pages: OwnPages,
        most_retries: int,
    ) -> None:
        self.forward: Forward = forward
        self._models = models
        self._pages = pages
        self._admission = admission
        self._membership = admission.membership
        self._reader = reader
        self._most_retries = most_retries
        policy = admission.dispatcher.rules.policy.label.encode()
        self._stamp = b"x-pointsman-policy: %b\r\nx-pointsman-request-id: " % policy

    async def serve(self, request: ClientRequest, client: ClientConnection) -> None:
        """Answer one request, whatever becomes of it."""
        if request.method != b"POST" or request.path in OWN_PATHS:
            answer = await self._answer_of_ours(request)
            if answer is not None:
                client.answer(request, answer)
                return
        try:
            request_id = request_id_of(request)
            question = self._reader.question(request, request_id)
        except InputError as error:
            client.answer(request, refusal(400, str(error), "invalid_body"))
            return
        if self._models.may_be_unknown(question.model, self._membership.ready):
            refused = await self._models.check(question.model, self._membership.ready)
            if refused is not None:
                client.answer(request, refused)
                return
        asked = Asked(question, len(request.body))
        await self._carry(Call(request, request_id.encode(), client, asked))

    async def _answer_of_ours(self, request: ClientRequest) -> Answer | None:
        own = self._pages.answer(request)
        if own is None and is_list(request.method, request.path):
            return await self._models.answer(request.path, self._membership.ready)
        return own

    async def _carry(self, call: Call) -> None:
        """One attempt after the other, until the client has an answer."""
        while True:
            try:
                place = await self._admission.place(call.asked)
            except RefusedError as refused:
                answer = failure(refused.http_status, str(refused), refused.code)
                stamp = b"retry-after: %d\r\n" % refused.retry_after_s + self._stamp_of(call)
                call.client.answer(call.request, answer, stamp)
                return
            call.attempts += 1
            if await self._attempt(call, place):
                return
            attempt = call.attempts + 1
            call.asked.question = replace(call.asked.question, attempt=attempt)

    async def _attempt(self, call: Call, place: Place) -> bool:
        """Whether the client has its answer; else the request is to be tried elsewhere."""
        relay: Relay | None = None
        retried: Ending | None = None
        try:
            stamp = self._stamp_of(call, place)
            relay = Relay(call.client, call.request, stamp, place.ticket.first_token)
            try:
                await self.forward(call, place, relay)
                relay.finish()
            except ReplicaError as error:
                call.asked.tried.add(place.culprit)
                if isinstance(error, LostError) and not relay.has_begun:
                    await self._look_whether_they_live(call)
                if not relay.has_begun and self._may_try_again(call, error):
                    retried = Ending(RETRIED, error=error.code)
                else:
                    relay.fail(error)
        finally:  # also where the client has left
            ending = retried or (_FAILED if relay is None else relay.ending())
            place.end(ending)
        if ending.http_status is not None and ending.error is None:
            self._judge(call, place.replica, ending.http_status)
        return retried is None

    def _stamp_of(self, call: Call, place: Place | None = None) -> bytes:
        """The headers that say why, each ending its line."""
        stamp = self._stamp + call.request_id + b"\r\n"
        if place is not None:
            stamp += b"%bx-pointsman-reason: %b\r\nx-pointsman-expected-wait-ms: %.3f\r\n" % (
                place.replica.pool.stamp,
                place.ticket.chosen.reason.encode(),
                place.ticket.chosen.expected_wait_ms,
            )
        if call.attempts > 1:
            stamp += b"x-pointsman-attempts: %d\r\n" % call.attempts
        return stamp

    def _judge(self, call: Call, replica: Replica, status: int) -> None:
        """Tell of what the replica itself answered."""
        question = call.asked.question
        if question.path in READ_PATHS:
            fault = hash(bytes(call.request.body)) if status >= _SERVER_ERROR else 0
            self._membership.answered(replica, status, question.model, fault)

    async def _look_whether_they_live(self, call: Call) -> None:
        """Where all that are taken to be ready lost the request, see if they take connections: that
        they have died may not have been noticed, and then the request waits for one."""
        ready = self._admission.ready_for(call.asked.question)
        if call.asked.tried.issuperset(ready):
            for number in ready:
                pool = self._membership[number].pool
                with suppress(UnreachableError, OutOfFilesError):
                    pool.release(await pool.connect())

    def _may_try_again(self, call: Call, error: ReplicaError) -> bool:
        """Whether another replica may get the request, or it may wait for one; counts the retry.

        One that was never sent may wait for any replica at no cost, for its wait is bounded.
        """
        ready = self._admission.ready_for(call.asked.question)
        if isinstance(error, UnreachableError):
            if not ready:
                return True
        elif not (isinstance(error, LostError) and _may_be_repeated(call.request)):
            return False
        if call.retries == self._most_retries or (ready and call.asked.tried.issuperset(ready)):
            return False
        call.retries += 1
        return True


async def forward(call: Call, place: Place, relay: Relay) -> None:
    """The request to the replica and its answer to the client, by a connection that is there."""
    pool = place.replica.pool
    upstream = pool.idle_one() or await pool.connect()
    try:
        await _sent(call, upstream, relay)
    except StaleConnectionError:
        pool.release(upstream)
        upstream = await pool.connect()
        await _sent(call, upstream, relay)
    finally:
        call.client.attach(None)
        pool.release(upstream)


def _sent(call: Call, upstream: Upstream, relay: Relay) -> Signal:
    """That the exchange, which has begun, is over."""
    call.client.attach(upstream)
    relay.over = over = Signal()
    data = request_bytes(call.request, call.request_id, upstream.address)
    upstream.exchange(data, relay, bodiless=call.request.method == b"HEAD")
    return over


def _may_be_repeated(request: ClientRequest) -> bool:
    """Whether it does no more harm than work done twice, where a replica may have begun it."""
    return request.method in _SAFE or (request.method == b"POST" and request.path in READ_PATHS)


def request_bytes(request: ClientRequest, request_id: bytes, address: ReplicaAddress) -> bytes:
    """The request as the replica gets it: the same body, our framing."""
    headers = passing(request.headers, request.fields, _OURS)
    headers.append((b"host", address.authority))
    headers.append((b"x-request-id", request_id))
    if request.body or request.method in (b"POST", b"PUT", b"PATCH"):
        headers.append((b"content-length", b"%d" % len(request.body)))
    line = b"%b %b%b HTTP/1.1" % (request.method, address.base, request.origin_form)
    return head_bytes(line, headers) + request.body
