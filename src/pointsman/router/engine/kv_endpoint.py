"""Where KV events come from, and which side of a ZeroMQ endpoint binds.

An engine binds where its own endpoint has a ``*`` or is ``ipc://`` or ``inproc://``, and connects
where it names a host (source: vllm-project/vllm, vllm/distributed/kv_events.py; SGLang's is the
same). Exactly one side has to bind; with both or neither there is silence and no error. So ours is
the other way round: an endpoint with a ``*`` is bound, one with a host is connected to.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from pointsman.core.errors import InputError

_TCP = re.compile(r"tcp://(\*|\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):([0-9]{1,5})")
_EVERYWHERE = ("*", "0.0.0.0", "[::]")


@dataclass(frozen=True, slots=True)
class KvEndpoint:
    """An address as ZeroMQ takes it, and whether we bind it or connect to it."""

    address: str
    binds: bool


@dataclass(frozen=True, slots=True)
class KvSource:
    """One engine's publisher; a data-parallel rank is a source of its own, on the port after.

    ``topic``: the engine's, to be equal; None takes all that comes, where nobody else publishes to
    this endpoint. ``replay``: where the engine answers for what was missed, to connect to.
    """

    replica: int
    endpoint: KvEndpoint
    topic: str | None = None
    replay: KvEndpoint | None = None


def kv_endpoint(text: str) -> KvEndpoint:
    """Read ``tcp://HOST:PORT`` (connect), ``tcp://*:PORT`` (bind), ``@tcp://HOST:PORT`` (bind).

    The ``@`` is CZMQ's sign for binding: it binds one interface instead of all. Also bound is
    ``0.0.0.0`` and ``[::]``, to which nobody can connect. Raises InputError.
    """
    address = text.removeprefix("@")
    found = _TCP.fullmatch(address)
    if found is None or not 0 < int(found[2]) < 65536:
        raise InputError(
            f"KV events: endpoint {text} is none; expected tcp://HOST:PORT to connect to an engine"
            " that binds, or tcp://*:PORT to bind for engines that connect"
        )
    return KvEndpoint(address, binds=text.startswith("@") or found[1] in _EVERYWHERE)


def refuse_clashes(sources: list[KvSource]) -> None:
    """Refuse sources that share an endpoint and cannot, or a replay to bind. Raises InputError."""
    for source in sources:
        if source.replay is not None and source.replay.binds:
            raise InputError(
                f"KV events: replay endpoint {source.replay.address} is to be bound, which the"
                " engine does; expected tcp://HOST:PORT"
            )
    seen: dict[str, list[KvSource]] = {}
    for source in sources:
        seen.setdefault(source.endpoint.address, []).append(source)
    for address, sharing in seen.items():
        topics = [source.topic for source in sharing]
        if len(topics) > 1 and (None in topics or len(set(topics)) < len(topics)):
            raise InputError(
                f"KV events: {len(topics)} engines publish to {address} and cannot be told apart;"
                " expected a topic of its own for each"
            )
        if len({source.endpoint.binds for source in sharing}) > 1:
            raise InputError(f"KV events: {address} is both bound and connected to; expected one")
