"""The admin API: replicas come and go while the router runs, on a listener of its own.

    GET    /replicas              all that are not removed
    POST   /replicas {"url": U}   a new one; its number
    POST   /replicas/ID/drain     no more requests there; those in flight go on
    DELETE /replicas/ID           drain, then forget it; ?now=true cuts off what is in flight

No page in a browser may use it: such requests have an Origin header, and are refused.
"""

from __future__ import annotations

import msgspec

from pointsman.core.errors import InputError
from pointsman.router.answers import Answer, refusal, report
from pointsman.router.client import ClientConnection
from pointsman.router.membership import Membership, MembershipError
from pointsman.router.messages import ClientRequest
from pointsman.router.status import facts_of
from pointsman.router.upstream import replica_address

REPLICAS = "/replicas"


class _NewReplica(msgspec.Struct, forbid_unknown_fields=True):
    url: str


_NEW_REPLICA = msgspec.json.Decoder(_NewReplica)


class Admin:
    """Serves the admin API to whoever may connect."""

    def __init__(self, membership: Membership) -> None:
        self._membership = membership

    async def serve(self, request: ClientRequest, client: ClientConnection) -> None:
        """Answer one request."""
        client.answer(request, self._answer(request))

    def _answer(self, request: ClientRequest) -> Answer:
        if request.header(b"origin") is not None:
            return refusal(403, "web pages may not use the admin API", "forbidden")
        try:
            return self._done(request)
        except MembershipError as error:
            return refusal(error.http_status, str(error), error.code)
        except InputError as error:
            return refusal(400, str(error), "invalid_request")

    def _done(self, request: ClientRequest) -> Answer:
        members, method = self._membership, request.method
        path = request.path.rstrip("/")
        query = request.origin_form.partition(b"?")[2]
        if path == REPLICAS and method == b"GET":
            return report([facts_of(replica) for replica in members.members])
        if path == REPLICAS and method == b"POST":
            return report(facts_of(members.add(replica_address(_url_of(request), "url"))), 201)
        number, _, action = path.removeprefix(REPLICAS + "/").partition("/")
        if path.startswith(REPLICAS + "/") and number.isascii() and number.isdigit():
            if (method, action) == (b"POST", "drain"):
                return report(facts_of(members.drain(int(number))))
            if (method, action) == (b"DELETE", ""):
                return report(facts_of(members.remove(int(number), at_once=_is_now(query))))
        return refusal(404, f"{method.decode()} {path} is not there; see GET {REPLICAS}", "unknown")


def _url_of(request: ClientRequest) -> str:
    try:
        return _NEW_REPLICA.decode(request.body).url
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f'the body cannot be read: {error}; expected {{"url": "..."}}') from None


def _is_now(query: bytes) -> bool:
    if query in (b"", b"now=false"):
        return False
    if query == b"now=true":
        return True
    raise InputError(f"the query {query.decode('latin-1')!r} is unknown; expected now=true")
