"""Where the load goes, and what an engine understands of a request beyond OpenAI's API."""

from __future__ import annotations

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pointsman.core.errors import InputError, unknown_name

COMPLETIONS, CHAT = "completions", "chat"
PATHS = {COMPLETIONS: b"/v1/completions", CHAT: b"/v1/chat/completions"}


@dataclass(frozen=True, slots=True)
class Dialect:
    """What an engine takes."""

    ignores_eos: bool  # with ignore_eos, answers are as long as asked
    body: dict[str, object]  # further keys
    stream_options: dict[str, object]  # beside include_usage


# Sources of the running counts: chunks.py. A server that is none of these is sent nothing that
# OpenAI's API does not have; its answers may end before max_tokens, and chunks are not tokens.
DIALECTS = {
    "vllm": Dialect(True, {}, {"continuous_usage_stats": True}),
    "sglang": Dialect(True, {}, {"continuous_usage_stats": True}),
    "llamacpp": Dialect(True, {"timings_per_token": True}, {}),
    "openai": Dialect(False, {}, {}),
}


@dataclass(frozen=True, slots=True)
class Target:
    """A router or an engine. ``dialect`` is what stands behind it, one of DIALECTS."""

    url: str
    model: str
    dialect: str = "openai"
    api: str = COMPLETIONS
    api_key: str | None = field(default=None, repr=False)
    host: str = field(init=False, repr=False)
    port: int = field(init=False, repr=False)
    is_tls: bool = field(init=False, repr=False)
    base: bytes = field(init=False, repr=False)  # goes before every path

    def __post_init__(self) -> None:
        if self.dialect not in DIALECTS:
            raise unknown_name("load client", "engine", self.dialect, DIALECTS)
        if self.api not in PATHS:
            raise unknown_name("load client", "API", self.api, PATHS)
        if self.api_key is not None and not (self.api_key.isascii() and self.api_key.isprintable()):
            raise InputError("load client: the API key is not printable ASCII; expected it to be")
        host, port, is_tls, base = _parts(self.url)
        object.__setattr__(self, "host", host)
        object.__setattr__(self, "port", port)
        object.__setattr__(self, "is_tls", is_tls)
        object.__setattr__(self, "base", base)

    @property
    def speaks(self) -> Dialect:
        """What the engine takes."""
        return DIALECTS[self.dialect]

    @property
    def path(self) -> bytes:
        """Of the API."""
        return PATHS[self.api]

    def head(self, path: bytes, *headers: bytes) -> bytes:
        """The head of a POST but for its length; ``headers`` are whole lines without their ends."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        lines = [
            b"POST " + self.base + path + b" HTTP/1.1",
            f"host: {host}:{self.port}".encode("ascii"),
            b"content-type: application/json",
        ]
        if self.api_key is not None:
            lines.append(b"authorization: Bearer " + self.api_key.encode("ascii"))
        return b"\r\n".join((*lines, *headers, b""))


def _parts(url: str) -> tuple[str, int, bool, bytes]:
    wrong = InputError(f"load client: {url!r} is no address; expected http://HOST:PORT")
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("ascii").decode("ascii")
        base = parts.path.rstrip("/").removesuffix("/v1").encode("ascii")
        port = parts.port
    except ValueError:
        raise wrong from None
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise wrong
    is_tls = parts.scheme == "https"
    if port is None:
        port = 443 if is_tls else 80
    return host, port, is_tls, base
