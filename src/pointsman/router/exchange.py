"""One request through the router.

client.py    bytes -> ClientRequest
exchange.py  this file: what happens to it, in order
prompt.py    ClientRequest -> Question
dispatch/dispatcher.py   Question -> Ticket: the policy's choice, accounted and logged
upstream.py  request to the replica;  relay.py  its answer to the client
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pointsman.core.errors import InputError
from pointsman.dispatch.dispatcher import Dispatcher, Ending, Ticket
from pointsman.dispatch.record import ERROR
from pointsman.router.answers import refusal, report
from pointsman.router.client import ClientConnection
from pointsman.router.messages import ClientRequest, Headers, forwarded, head_bytes
from pointsman.router.models import ModelTable, is_list
from pointsman.router.prompt import QuestionReader, request_id_of
from pointsman.router.relay import Relay, Stamp
from pointsman.router.upstream import (
    Pool,
    ReplicaAddress,
    ReplicaError,
    StaleConnectionError,
    Upstream,
)

HEALTH = "/health"

_OURS = frozenset((b"host", b"content-length", b"expect", b"x-request-id"))

# Of a request that the router itself could not serve.
_FAILED = Ending(ERROR, http_status=500, error="router_error")


@dataclass(frozen=True, slots=True)
class _Call:
    request: ClientRequest
    request_id: str
    client: ClientConnection
    relay: Relay


class Exchange:
    """Serves requests: one choice each, forwarded, streamed back and accounted."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        pools: Sequence[Pool],
        reader: QuestionReader,
        models: ModelTable,
    ) -> None:
        self._models = models
        self._dispatcher = dispatcher
        self._pools = pools
        self._reader = reader

    async def serve(self, request: ClientRequest, client: ClientConnection) -> None:
        """Answer one request, whatever becomes of it."""
        if request.path == HEALTH:
            client.answer(request, report(self._health()), [])
            return
        if is_list(request.method, request.path):
            answer = await self._models.answer(request.path, self._living())
            if answer is not None:
                client.answer(request, answer, [])
                return
        try:
            request_id = request_id_of(request)
            question = self._reader.question(request, request_id)
        except InputError as error:
            client.answer(request, refusal(400, str(error), "invalid_body"), [])
            return
        refused = await self._models.check(question.model, self._living())
        if refused is not None:
            client.answer(request, refused, [])
            return
        candidates = self._models.candidates_for(question.model, self._living())
        ticket = self._dispatcher.choose(question, candidates)
        relay: Relay | None = None
        try:
            stamp = Stamp(self._headers(ticket, request_id), self._dispatcher.clock_ms)
            relay = Relay(client, request, stamp)
            await self._answer(_Call(request, request_id, client, relay), ticket)
        finally:  # also where the client has left
            ticket.end(_FAILED if relay is None else relay.ending())

    def _living(self) -> list[int]:
        """The replicas that are not left out; all, also where none would remain."""
        for pool in self._pools:
            pool.try_again_when_due()
        present = [number for number, pool in enumerate(self._pools) if not pool.is_left_out]
        return present or list(range(len(self._pools)))

    async def _answer(self, call: _Call, ticket: Ticket) -> None:
        try:
            await self._forward(call, self._pools[ticket.replica])
            call.relay.finish()
        except ReplicaError as error:
            call.relay.fail(error)

    async def _forward(self, call: _Call, pool: Pool) -> None:
        try:
            await self._send(call, pool, await pool.acquire())
        except StaleConnectionError:
            await self._send(call, pool, await pool.connect())

    async def _send(self, call: _Call, pool: Pool, upstream: Upstream) -> None:
        call.client.attach(upstream)
        try:
            data = request_bytes(call.request, call.request_id, pool.address)
            bodiless = call.request.method == b"HEAD"
            await upstream.exchange(data, call.relay, bodiless=bodiless)
        finally:
            call.client.attach(None)
            pool.release(upstream)

    def _headers(self, ticket: Ticket, request_id: str) -> Headers:
        return [
            (b"x-pointsman-replica", self._pools[ticket.replica].address.url.encode()),
            (b"x-pointsman-policy", self._dispatcher.rules.policy.label.encode()),
            (b"x-pointsman-reason", ticket.reason.encode()),
            (b"x-pointsman-expected-wait-ms", b"%.3f" % ticket.expected_wait_ms),
            (b"x-pointsman-request-id", request_id.encode()),
        ]

    def _health(self) -> dict[str, object]:
        ledger = self._dispatcher.ledger
        return {
            "status": "ok",
            "policy": self._dispatcher.rules.policy.label,
            "replicas": [
                {"url": pool.address.url, "in_flight": int(count), **_state_of(pool)}
                for pool, count in zip(self._pools, ledger.requests, strict=True)
            ],
        }


def _state_of(pool: Pool) -> dict[str, object]:
    failure = pool.last_failure
    return {
        "connects": pool.connects,
        "left_out": pool.is_left_out,
        "last_failure": failure and {"error": failure.error, "ago_s": failure.ago_s()},
    }


def request_bytes(request: ClientRequest, request_id: str, address: ReplicaAddress) -> bytes:
    """The request as the replica gets it: the same body, our framing."""
    headers = forwarded(request.headers, _OURS)
    headers.append((b"host", address.authority))
    headers.append((b"x-request-id", request_id.encode("ascii")))
    if request.body or request.method in (b"POST", b"PUT", b"PATCH"):
        headers.append((b"content-length", b"%d" % len(request.body)))
    target = address.base + request.origin_form
    return head_bytes(request.method + b" " + target + b" HTTP/1.1", headers) + request.body
