"""Which endpoints a request is sent to, and the account of it until its exchange ends.

ClientRequest -> Question -> Place, as in the router; then the endpoint of its replica, and of
those that the policy would choose next, in order, for Envoy to try where the first cannot be
reached. What Envoy says of the answer moves the account to the replica that really served.
"""

from __future__ import annotations

import asyncio
import ipaddress
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus

import xxhash
from msgspec.structs import replace

from pointsman.core.errors import InputError
from pointsman.dispatch.dispatcher import Ending, Question
from pointsman.dispatch.record import ERROR, OK, RETRIED, TRUNCATED
from pointsman.router.admission import Place
from pointsman.router.answers import Answer, failure, refusal
from pointsman.router.asked import Asked, RefusedError
from pointsman.router.edge import Complain
from pointsman.router.membership import Replica
from pointsman.router.messages import ClientRequest
from pointsman.router.prompt import CHAT, COMPLETIONS, request_id_of
from pointsman.router.relay import ERROR_EVENT
from pointsman.router.service import Router
from pointsman.router.upstream import ReplicaAddress, UnreachableError
from pointsman.router.usage import ResponseTap

_ELSEWHERE = Ending(RETRIED, error="served_elsewhere")
UNREACHABLE = "replica_unreachable"


@dataclass(frozen=True, slots=True)
class Refusal:
    """What the client gets instead of a replica's answer. ``request_id``: where it has one."""

    answer: Answer
    why: str
    request_id: str | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the gateway says of a request beside itself.

    ``subset``: the endpoints that it may go to; None for any. ``sees_answer``: whether anything of
    its answer will be seen, ``reads_answer``: whether the body.
    """

    subset: frozenset[str] | None = None
    sees_answer: bool = True
    reads_answer: bool = False


def endpoint_of(address: ReplicaAddress) -> str:
    """What Envoy knows the replica by."""
    return address.authority.decode("ascii")


def check_endpoint(address: ReplicaAddress) -> None:
    """Raises InputError for a replica that no endpoint stands for: these are IP addresses, and
    Envoy changes no path."""
    try:
        ipaddress.ip_address(address.host)
    except ValueError:
        raise InputError(
            f"--replica {address.url}: Envoy knows replicas by their IP addresses; expected one, or"
            " --discover, which looks names up"
        ) from None
    if address.base:
        raise InputError(f"--replica {address.url}: has a path; expected http://IP:PORT")


@dataclass(frozen=True, slots=True)
class Sent:
    """A request and where it may have gone, the first choice first. ``body_hash``: of its body."""

    question: Question
    replicas: list[Replica]
    body_hash: int
    bounds: Bounds


class Picks:
    """Picks endpoints with the choices of this router: a first one, and as many others for Envoy to
    try as the router itself would."""

    def __init__(self, router: Router, complain: Complain) -> None:
        self.admission = router.admission
        self._reader = router.reader
        self._models = router.models
        self._fallbacks = router.resilience.retries
        self._complain = complain
        self._strangers: set[str] = set()
        self._looks: set[asyncio.Task[None]] = set()

    async def pick(self, request: ClientRequest, bounds: Bounds) -> Pick | Refusal:
        """Where the request is to go, now; or what it is refused with."""
        try:
            request_id = request_id_of(request)
            question = self._reader.question(request, request_id)
        except InputError as error:
            return Refusal(refusal(400, str(error), "invalid_body"), "invalid_body")
        ready = self.admission.membership.ready
        if self._models.may_be_unknown(question.model, ready):
            refused = await self._models.check(question.model, ready)
            if refused is not None:
                return Refusal(refused, "model_not_found", request_id)
        if not bounds.reads_answer:
            question = replace(question, streams=False)  # nobody will see its first token
        return await self._placed(Asked(question, len(request.body)), request.body, bounds)

    async def _placed(
        self, asked: Asked, body: bytes | bytearray, bounds: Bounds
    ) -> Pick | Refusal:
        if bounds.subset is not None:
            asked.outside = self._outside(bounds.subset)
        try:
            place = await self.admission.place(asked)
        except RefusedError as refused:
            retry = (b"retry-after", b"%d" % refused.retry_after_s)
            answer = failure(refused.http_status, str(refused), refused.code)
            answer = Answer(answer.status, answer.body, (retry,))
            return Refusal(answer, refused.code, asked.question.request_id)
        others = self._next_ones(asked, place.replica)
        body_hash = xxhash.xxh3_64_intdigest(body)
        replicas = [place.replica, *others]
        return Pick(self, place, Sent(asked.question, replicas, body_hash, bounds))

    def _outside(self, subset: frozenset[str]) -> frozenset[int]:
        """All replicas whose endpoints are not in the subset."""
        members = self.admission.membership.members
        return frozenset(
            replica.number for replica in members if endpoint_of(replica.pool.address) not in subset
        )

    def _next_ones(self, asked: Asked, first: Replica) -> list[Replica]:
        """The ones that the policy would choose if those before them were not there."""
        membership, dispatcher = self.admission.membership, self.admission.dispatcher
        without = asked.outside | {first.number}
        left = [each for each in self.admission.ready_for(asked.question) if each not in without]
        found: list[Replica] = []
        while left and len(found) < self._fallbacks:
            number = left[0] if len(left) == 1 else dispatcher.ask(asked.question, left).replica
            found.append(membership[number])
            left.remove(number)
        return found

    def replica_at(self, endpoint: str) -> Replica | None:
        """The replica that Envoy knows by this; the newest, where one drains there."""
        for replica in reversed(self.admission.membership.members):
            if endpoint_of(replica.pool.address) == endpoint:
                return replica
        if endpoint not in self._strangers:
            self._strangers.add(endpoint)
            self._complain(
                f"Envoy sent a request to {endpoint}, which is no replica of this picker; expected"
                " the same replicas in both"
            )
        return None

    def look_at(self, replicas: list[Replica]) -> None:
        """See whether they take connections: Envoy could not do with them. Nobody waits for it."""
        for replica in replicas:
            look = asyncio.get_running_loop().create_task(_look(replica))
            self._looks.add(look)
            look.add_done_callback(self._looks.discard)

    def stop(self) -> None:
        """Look no more."""
        for look in self._looks:
            look.cancel()


async def _look(replica: Replica) -> None:
    with suppress(UnreachableError):
        replica.pool.release(await replica.pool.connect())


class Pick:
    """One request that was sent somewhere. Whoever holds it calls ``end``, whatever happens."""

    def __init__(self, picks: Picks, place: Place, sent: Sent) -> None:
        self.request_id = sent.question.request_id
        self.destination = ",".join(endpoint_of(each.pool.address) for each in sent.replicas)
        self._picks = picks
        self._place: Place | None = place
        self._sent = sent
        self._tap: ResponseTap | None = None
        self._http_status: int | None = None
        self._error: str | None = None
        self._is_whole = False
        self._body_bytes = 0

    def answered(self, status: int, served: str | None, *, is_own: bool) -> None:
        """An answer begins. ``served``: the endpoint that was taken last, if that is known.
        ``is_own``: it is the replica's, and not one that Envoy gives in its place."""
        if self._place is None or self._http_status is not None:
            return
        self._http_status = status
        first = self._sent.replicas[0]
        if served is not None and served != endpoint_of(first.pool.address):
            self._move(self._picks.replica_at(served))
        if not is_own:
            self._error = UNREACHABLE
        suspects = self._suspects(served, is_own=is_own)
        if suspects:
            self._picks.look_at(suspects)

    def _suspects(self, served: str | None, *, is_own: bool) -> list[Replica]:
        """Those that Envoy went past, and the one that it ended at without an answer."""
        passed = []
        for replica in self._sent.replicas:
            if served is None or endpoint_of(replica.pool.address) == served:
                break
            passed.append(replica)
        if not is_own and self._place is not None and self._place.replica not in passed:
            passed.append(self._place.replica)
        return passed

    def _move(self, replica: Replica | None) -> None:
        """The request is at this replica, and not where it was sent first."""
        assert self._place is not None
        self._place.end(_ELSEWHERE)
        self._place = None
        if replica is not None:
            question = replace(self._sent.question, attempt=2)
            ticket = self._picks.admission.dispatcher.choose(question, [replica.number])
            self._place = Place(ticket, self._picks.admission)

    def headers(self) -> list[tuple[str, bytes]]:
        """What the answer says of where it comes from, and why."""
        dispatcher = self._picks.admission.dispatcher
        said = [
            ("x-pointsman-policy", dispatcher.rules.policy.label.encode()),
            ("x-pointsman-request-id", self.request_id.encode()),
        ]
        if self._place is None:
            return said
        ticket, replica = self._place.ticket, self._place.replica
        return [
            *said,
            ("x-pointsman-replica", replica.url.encode()),
            ("x-pointsman-reason", ticket.chosen.reason.encode()),
            ("x-pointsman-expected-wait-ms", b"%.3f" % ticket.chosen.expected_wait_ms),
        ]

    def streams(self, *, is_stream: bool) -> None:
        """The body of its answer comes; ``is_stream``: as server-sent events."""
        self._tap = ResponseTap(stream=is_stream)

    def body(self, piece: bytes) -> None:
        """A piece of the answer's body."""
        if self._tap is None or self._place is None:
            return
        self._body_bytes += len(piece)
        self._tap.feed(piece)
        if self._tap.saw_token:
            self._place.ticket.first_token()

    def is_whole(self) -> None:
        """The answer has ended as HTTP says it ends."""
        self._is_whole = True
        self.end()

    def end(self) -> None:
        """The exchange is over. Once counts."""
        if self._place is not None:
            place, self._place = self._place, None
            ending = self._ending()
            place.end(ending)
            self._judge(place.replica, ending)

    def _ending(self) -> Ending:
        if self._http_status is None:  # nobody has seen an answer
            return Ending() if self._sent.bounds.sees_answer else Ending(OK)
        status, error = OK if self._http_status < HTTPStatus.BAD_REQUEST else ERROR, self._error
        if self._sent.bounds.reads_answer and not self._is_whole:
            status = TRUNCATED  # by its replica or its client, which Envoy does not say
        elif self._tap is not None and self._tap.tells_an_error:
            status, error = TRUNCATED, ERROR_EVENT
        return Ending(
            status,
            self._http_status,
            Ending().usage if self._tap is None else self._tap.usage(),
            self._body_bytes,
            error,
        )

    def _judge(self, replica: Replica, ending: Ending) -> None:
        """Tell of what the replica itself answered."""
        status, question = ending.http_status, self._sent.question
        if status is None or ending.error is not None or question.path not in (CHAT, COMPLETIONS):
            return
        fault = self._sent.body_hash if status >= HTTPStatus.INTERNAL_SERVER_ERROR else 0
        membership = self._picks.admission.membership
        membership.answered(replica, status, question.model, fault)
