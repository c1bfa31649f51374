"""The picker as a gRPC server: Envoy's external processing, and health checks of gRPC."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from pointsman.core.errors import MachineError
from pointsman.picker import wire
from pointsman.picker.conversation import Conversation
from pointsman.picker.envoy_config import NOTHING
from pointsman.picker.picks import Picks
from pointsman.picker.protocol import ANSWERS_KEY, PROCESS, SERVICE
from pointsman.picker.replies import Replies
from pointsman.picker.scheduling import threads_that_wait_their_turn
from pointsman.picker.tls import Identity
from pointsman.router.answers import failure
from pointsman.router.edge import Complain
from pointsman.router.health import State
from pointsman.router.service import Router

HEALTH_SERVICE = "grpc.health.v1.Health"
LIVENESS, READINESS = "liveness", "readiness"
# Source: kubernetes-sigs/gateway-api-inference-extension, whose picker answers for these too.
_KNOWN = ("", LIVENESS, READINESS, SERVICE)
_WATCH_S = 1.0

SEES_NOTHING = (ANSWERS_KEY, NOTHING)  # what Envoy says of itself then

MESSAGE_ROOM_BYTES = 1 << 20  # of a message, beside the body in it


class PickerServer:
    """Answers Envoy with the choices of this router, which listens nowhere itself.

    ``max_body_bytes``: of a request. Raises MachineError where gRPC is not installed.
    """

    def __init__(self, router: Router, max_body_bytes: int, complain: Complain) -> None:
        self._router = router
        self._picks = Picks(router, complain)
        self._replies = Replies()
        self._max_body_bytes = max_body_bytes
        self._complain = complain
        self._is_stopping = False
        self._server: Any = None

    async def start(self, host: str, port: int, identity: Identity | None = None) -> int:
        """Listen, with TLS where there is an identity; the port, which is a free one for 0. Raises
        MachineError where it cannot."""
        grpc = grpc_module()
        most = self._max_body_bytes + MESSAGE_ROOM_BYTES
        options = [
            ("grpc.so_reuseport", 0),  # else a second picker would share the port
            ("grpc.max_receive_message_length", most),
            ("grpc.max_send_message_length", most),
        ]
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        with threads_that_wait_their_turn():
            self._server = grpc.aio.server(options=options)
            self._server.add_generic_rpc_handlers(self._handlers(grpc))
            secret = None if identity is None else identity.credentials(grpc)
            bound = self._bound(where, secret)
            await self._server.start()
        return bound

    def _bound(self, where: str, secret: Any) -> int:
        server = self._server
        try:
            bound: int = (
                server.add_insecure_port(where)
                if secret is None
                else server.add_secure_port(where, secret)
            )
        except RuntimeError:
            raise MachineError(
                f"cannot listen on {where}: the address is in use, or not ours; try another"
                " --listen, such as 127.0.0.1:0 for a free port"
            ) from None
        return bound

    async def stop(self, drain_s: float) -> None:
        """Take no more requests, let those in flight end for a while, then cut them off."""
        self._is_stopping = True
        if self._server is not None:
            await self._server.stop(drain_s)
        self._picks.stop()

    def _handlers(self, grpc: Any) -> tuple[Any, ...]:
        read = wire.message("ProcessingRequest").FromString
        process = grpc.stream_stream_rpc_method_handler(self._process, read)
        asked, told = wire.message("HealthCheckRequest"), wire.message("HealthCheckResponse")
        coding = (asked.FromString, told.SerializeToString)
        health = {
            "Check": grpc.unary_unary_rpc_method_handler(self._check, *coding),
            "Watch": grpc.unary_stream_rpc_method_handler(self._watch, *coding),
        }
        return (
            grpc.method_handlers_generic_handler(SERVICE, {PROCESS: process}),
            grpc.method_handlers_generic_handler(HEALTH_SERVICE, health),
        )

    # External processing.

    async def _process(self, messages: object, context: Any) -> None:
        """One request, until its exchange has ended. Read and written by hand: it is quicker."""
        conversation = Conversation(
            self._picks,
            self._replies,
            self._max_body_bytes,
            sees_answer=SEES_NOTHING not in context.invocation_metadata(),
        )
        try:
            while not conversation.is_over:
                message = await context.read()
                if not hasattr(message, "WhichOneof"):  # the end of the stream
                    return
                for reply in await self._answer(conversation, message):
                    await context.write(reply)
        finally:
            conversation.end()

    async def _answer(self, conversation: Conversation, message: Any) -> list[bytes]:
        try:
            return await conversation.take(message)
        except Exception as error:  # a bug of ours, or of a policy, is that request's error
            self._complain(f"a request failed within the picker: {error!r}")
            conversation.is_over = True
            answer = failure(500, "the endpoint picker failed", "router_error")
            return [self._replies.refusal(answer, (), "pointsman_router_error")]

    # Health.

    def _status_of(self, service: str) -> int:
        """Alive whenever it answers; ready while a replica is up and it is not stopping."""
        if service not in _KNOWN:
            return wire.SERVICE_UNKNOWN
        if service == LIVENESS:
            return wire.SERVING
        membership = self._router.membership
        is_up = any(membership[number].health.state is State.UP for number in membership.ready)
        return wire.SERVING if is_up and not self._is_stopping else wire.NOT_SERVING

    async def _check(self, request: Any, context: Any) -> Any:
        status = self._status_of(request.service)
        if status == wire.SERVICE_UNKNOWN:
            known = ", ".join(repr(each) for each in _KNOWN)
            message = f"service {request.service!r} is unknown; expected one of {known}"
            await context.abort(grpc_module().StatusCode.NOT_FOUND, message)
        return wire.message("HealthCheckResponse")(status=status)

    async def _watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        """Its status now, and each other one from then on."""
        told = None
        while True:
            status = self._status_of(request.service)
            if status != told:
                told = status
                yield wire.message("HealthCheckResponse")(status=status)
            await asyncio.sleep(_WATCH_S)


def grpc_module() -> Any:
    """gRPC. Raises MachineError where it is not installed."""
    try:
        import grpc
    except ImportError:
        raise MachineError(
            "gRPC is not installed; install it with: pip install 'pointsman[envoy]'"
        ) from None
    return grpc
