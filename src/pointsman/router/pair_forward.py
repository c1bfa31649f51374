"""One request over a pair: the hand-off by the protocol, then the decode replica's answer.

prefill --answered--> transfer --> decode: its answer goes to the client
   `--- failed: the decode replica computes the prompt itself, or the request is tried again
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from http import HTTPStatus

import msgspec
from msgspec.structs import replace

from pointsman.router.admission import Place
from pointsman.router.exchange import Call, forward, request_bytes
from pointsman.router.flow import Flow, Signal
from pointsman.router.handoff.bodies import Fields, body_of, fields_of_body
from pointsman.router.handoff.protocol import (
    PREFILL_ERROR,
    PREFILL_LOST,
    PREFILL_TIMEOUT,
    PREFILL_UNREACHABLE,
    TRANSFER_FAILED,
    TRANSFER_TIMEOUT,
    HandOffError,
    HandOffProtocol,
    RejectedError,
)
from pointsman.router.membership import Membership, Replica
from pointsman.router.messages import ClientRequest
from pointsman.router.pair_admission import PairPlace
from pointsman.router.prompt import CHAT, COMPLETIONS
from pointsman.router.relay import Relay
from pointsman.router.upstream import (
    LostError,
    ReplicaError,
    SilentError,
    StaleConnectionError,
    UnreachableError,
    Upstream,
)
from pointsman.router.usage import prefill_ms_of
from pointsman.router.whole_answer import WholeAnswer, whole_answer

# What the router reads itself must come as it is.
_NOT_ASKED = frozenset((b"accept-encoding", b"content-encoding", b"content-type", b"accept"))
_JSON = (b"content-type", b"application/json")


class PairForward:
    """Gets requests over their pairs; each call that moves a cache may take ``timeout_ms``."""

    def __init__(
        self, protocol: HandOffProtocol, membership: Membership, timeout_ms: float
    ) -> None:
        self._protocol = protocol
        self._membership = membership
        self._timeout_ms = timeout_ms

    async def __call__(self, call: Call, place: Place, relay: Relay) -> None:
        """As ``forward``."""
        assert isinstance(place, PairPlace)
        request = call.request
        if request.method != b"POST" or request.path not in (CHAT, COMPLETIONS):
            await forward(call, place, relay)
        elif place.prefill is None:
            await _to_decode(call, place, relay, self._own_fields(request))
        else:
            relay.say(b"x-pointsman-prefill: %b\r\n" % place.prefill.url.encode())
            with ExitStack() as ends:
                means = LegMeans(self._membership, self._timeout_ms, ends)
                legs = PairLegs(call, place, self._own_fields(request) or {}, means)
                await self._over(legs, relay)

    def _own_fields(self, request: ClientRequest) -> Fields | None:
        """The client's fields, without those that only the router may set; None for a body that is
        not read."""
        try:
            fields = fields_of_body(request.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None
        return {name: raw for name, raw in fields.items() if name not in self._protocol.reserved}

    async def _over(self, legs: PairLegs, relay: Relay) -> None:
        place, ticket = legs.place, legs.place.pair_ticket
        asked: Fields | None = legs.fields
        try:
            asked = await self._protocol.hand_over(legs)
        except RejectedError as rejected:
            ticket.count_failure(rejected.cause)
            _pass_on(rejected, relay)
            return
        except HandOffError as failed:
            if not self._protocol.decodes_alone:
                raise legs.blamed(failed) from failed
            ticket.fall_back(failed.cause)
        try:
            await _to_decode(legs.call, place, relay, asked, legs.watch)
        except ReplicaError:
            if legs.failed_beside is None:
                raise
            if isinstance(legs.failed_beside, RejectedError) and not relay.has_begun:
                ticket.count_failure(legs.failed_beside.cause)
                _pass_on(legs.failed_beside, relay)
                return
            raise legs.blamed(legs.failed_beside) from None


@dataclass(frozen=True, slots=True)
class LegMeans:
    """``timeout_ms``: of each call that moves a cache. ``ends``: what is to be done at the end."""

    membership: Membership
    timeout_ms: float
    ends: ExitStack


class PairLegs:
    """What a protocol works with for one request (handoff/protocol.py)."""

    def __init__(self, call: Call, place: PairPlace, fields: Fields, means: LegMeans) -> None:
        assert place.prefill is not None
        self.call = call
        self.place = place
        self.fields = fields
        self.failed_beside: HandOffError | None = None
        self._means = means
        self._prefill = place.prefill
        self._decode_upstream: Upstream | None = None
        self.chain = call.asked.question.chain.array
        self.prefill_number = place.prefill.number
        self.decode_number = place.replica.number
        self.prefill_address = place.prefill.pool.address
        self.bootstrap_port = place.prefill.options.bootstrap_port

    async def prefill(self, fields: Fields) -> bytes:
        """The prefill replica's answer to the request with these fields."""
        request = _asking(self.call.request, body_of(fields))
        try:
            answer = await self._answer(self._prefill, request, None)
        except ReplicaError as error:
            raise HandOffError(_cause_of(error), error) from error
        self._judge(answer.status)
        if answer.head is not None and 400 <= answer.status < 500:
            raise RejectedError(answer.head, answer.content)
        if answer.status != HTTPStatus.OK:
            raise self.failure(PREFILL_ERROR, f"answered the prefill with {answer.status}")
        self.place.pair_ticket.prefilled(prefill_ms_of(answer.content))
        return answer.content

    def prefill_beside(self, fields: Fields) -> None:
        """The same, while the decode replica works."""
        flow = Flow(self._discarding(fields), self._look_beside)
        self._means.ends.callback(flow.cancel)
        flow.go_on()

    def watch(self, upstream: Upstream) -> None:
        """Where the decode replica works; it is cut off at once if the prefill has failed."""
        self._decode_upstream = upstream
        if self.failed_beside is not None:
            upstream.cut_off("waits for a prefill that failed")

    async def call_prefill(self, method: bytes, target: bytes, body: bytes) -> bytes:
        """What the prefill replica answers to a call that moves a cache."""
        return await self._call(self._prefill, method, target, body)

    async def call_decode(self, method: bytes, target: bytes, body: bytes) -> bytes:
        """What the decode replica answers to one."""
        return await self._call(self.place.replica, method, target, body)

    def handed_off(self, size_bytes: int | None) -> None:
        """The cache is on the decode replica."""
        self.place.pair_ticket.handed_off(size_bytes)

    def at_end(self, act: Callable[[], None]) -> None:
        """To be done when the request is over there."""
        self._means.ends.callback(act)

    def failure(self, cause: str, what: str) -> HandOffError:
        """There is no hand-off because the prefill replica did this."""
        return HandOffError(cause, LostError(f"replica {self._prefill.url} {what}"))

    def blamed(self, failed: HandOffError) -> ReplicaError:
        """Counts the failure, for which the prefill replica is not to get the request again."""
        self.place.pair_ticket.count_failure(failed.cause)
        self.place.blames_prefill = True
        return failed.error

    async def _discarding(self, fields: Fields) -> None:
        await self.prefill(fields)

    def _look_beside(self, error: Exception | None) -> None:
        """A prefill whose first token has come has done its part."""
        if error is None or self.place.pair_ticket.has_first_token:
            return
        if not isinstance(error, HandOffError):
            self.failed_beside = self.failure(PREFILL_LOST, "is lost")
        else:
            self.failed_beside = error
        if self._decode_upstream is not None:
            self._decode_upstream.cut_off("waits for a prefill that failed")
        if not isinstance(error, HandOffError):
            raise error  # a bug of ours

    async def _call(self, replica: Replica, method: bytes, target: bytes, body: bytes) -> bytes:
        what = f"{method.decode()} {target.decode()}"
        request = replace(_asking(self.call.request, body), method=method, target=target)
        try:
            answer = await self._answer(replica, request, self._means.timeout_ms)
        except ReplicaError as error:
            raise HandOffError(TRANSFER_FAILED, error) from error
        if answer.is_late:
            late = SilentError(f"replica {replica.url}: {what} took {self._means.timeout_ms:g} ms")
            raise HandOffError(TRANSFER_TIMEOUT, late)
        if answer.status != HTTPStatus.OK:
            refused = LostError(f"replica {replica.url} answered {what} with {answer.status}")
            raise HandOffError(TRANSFER_FAILED, refused)
        return answer.content

    async def _answer(
        self, replica: Replica, request: ClientRequest, limit_ms: float | None
    ) -> WholeAnswer:
        data = request_bytes(request, self.call.request_id, replica.pool.address)
        return await whole_answer(replica.pool, data, limit_ms)

    def _judge(self, status: int) -> None:
        """Tell of what the prefill replica itself answered."""
        body = bytes(self.call.request.body)
        fault = hash(body) if status >= HTTPStatus.INTERNAL_SERVER_ERROR else 0
        self._means.membership.answered(
            self._prefill, status, self.call.asked.question.model, fault
        )


def _cause_of(error: ReplicaError) -> str:
    if isinstance(error, UnreachableError):
        return PREFILL_UNREACHABLE
    return PREFILL_TIMEOUT if isinstance(error, SilentError) else PREFILL_LOST


def _asking(request: ClientRequest, body: bytes) -> ClientRequest:
    """The client's request with another body, whose answer the router can read."""
    headers = [pair for pair in request.headers if pair[0] not in _NOT_ASKED]
    return replace(request, headers=[*headers, _JSON], body=body, fields={})


def _pass_on(rejected: RejectedError, relay: Relay) -> None:
    """The prefill replica's own answer goes to the client."""
    relay.begin(rejected.head)
    relay.body(rejected.body, is_end=True)


async def _to_decode(
    call: Call,
    place: PairPlace,
    relay: Relay,
    fields: Fields | None,
    watch: Callable[[Upstream], None] = lambda upstream: None,
) -> None:
    """The request with these fields (None: as it came) to the decode replica, its answer to the
    client."""
    request = call.request if fields is None else replace(call.request, body=body_of(fields))
    pool = place.replica.pool
    upstream = pool.idle_one() or await pool.connect()
    try:
        await _sent(call, request, upstream, relay, watch)
    except StaleConnectionError:
        pool.release(upstream)
        upstream = await pool.connect()
        await _sent(call, request, upstream, relay, watch)
    finally:
        call.client.attach(None)
        pool.release(upstream)


def _sent(
    call: Call,
    request: ClientRequest,
    upstream: Upstream,
    relay: Relay,
    watch: Callable[[Upstream], None],
) -> Signal:
    """That the exchange, which has begun, is over."""
    call.client.attach(upstream)
    relay.over = over = Signal()
    data = request_bytes(request, call.request_id, upstream.address)
    upstream.exchange(data, relay, bodiless=False)
    watch(upstream)
    return over
