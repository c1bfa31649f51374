"""The bytes of each request: the prompt in the body that the target understands."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from pointsman.bench.client.target import CHAT, Target
from pointsman.workload.workload import MISSING, Workload

_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Generation:
    """How answers are generated; the seed is the server's, for its sampling."""

    temperature: float = 0.0
    seed: int = 0


def body_of(target: Target, prompt: str, max_tokens: int, how: Generation | None = None) -> bytes:
    """A request for a stream with usage, and with what the engine understands beyond that."""
    how = how or Generation()
    speaks = target.speaks
    body: dict[str, object] = {"model": target.model}
    if target.api == CHAT:
        body["messages"] = [{"role": "user", "content": prompt}]
    else:
        body["prompt"] = prompt
    body |= {"max_tokens": max_tokens, "temperature": how.temperature, "seed": how.seed}
    body |= {"stream": True, "stream_options": {"include_usage": True, **speaks.stream_options}}
    if speaks.ignores_eos:
        body["ignore_eos"] = True
    return _encode(body | speaks.body)


def request_of(target: Target, path: bytes, body: bytes, *headers: bytes) -> bytes:
    """A whole POST; ``headers`` are whole lines without their ends."""
    return target.head(path, *headers) + b"content-length: %d\r\n\r\n" % len(body) + body


def session_header(workload: Workload, number: int) -> tuple[bytes, ...]:
    """The header that tells the router of a request's session; none where there is none."""
    session = int(workload.session[number])
    if session == MISSING:
        return ()
    names = workload.names.sessions
    name = str(session) if names is None else names[session]
    return (b"x-session-id: " + name.encode("unicode_escape"),)
