"""An HTTP client that shows what is on the wire: raw heads, chunks and ends."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass

DEADLINE_S = 10.0


@dataclass
class RawResponse:
    status: int
    headers: dict[str, str]
    body: bytes
    is_whole: bool  # it ended where HTTP says it ends

    @property
    def json(self):
        return json.loads(self.body)


class RawClient:
    """One connection; ``host``: whom it asks for."""

    def __init__(self, port: int, host: str = "test") -> None:
        self.port = port
        self.host = host

    async def __aenter__(self) -> RawClient:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *error) -> None:
        self.writer.close()
        await asyncio.gather(self.writer.wait_closed(), return_exceptions=True)

    def send(self, method: str, path: str, body=b"", **headers: str) -> None:
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        lines = [f"{method} {path} HTTP/1.1", f"host: {self.host}", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    async def request(self, method: str, path: str, body=b"", **headers: str) -> RawResponse:
        self.send(method, path, body, **headers)
        return await self.response(bodiless=method == "HEAD")

    async def post(self, path: str, body, **headers: str) -> RawResponse:
        return await self.request("POST", path, body, **headers)

    async def response(self, *, bodiless: bool = False) -> RawResponse:
        async with asyncio.timeout(DEADLINE_S):
            status, headers = await self.head()
            if bodiless or status in (204, 304):
                return RawResponse(status, headers, b"", True)
            body, is_whole = await self._body(headers)
            return RawResponse(status, headers, body, is_whole)

    async def head(self) -> tuple[int, dict[str, str]]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = [line.split(": ", 1) for line in head[1:] if line]
        assert len({name for name, _ in pairs}) == len(pairs), f"a header came twice: {pairs}"
        return int(head[0].split()[1]), dict(pairs)

    async def _body(self, headers: dict[str, str]) -> tuple[bytes, bool]:
        body = b""
        try:
            if headers.get("transfer-encoding") == "chunked":
                async for chunk in self.chunks():
                    body += chunk
                return body, True
            if "content-length" in headers:
                return await self.reader.readexactly(int(headers["content-length"])), True
            return await self.reader.read(-1), True
        except asyncio.IncompleteReadError as error:
            return body or error.partial, False

    async def chunks(self):
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            chunk = await self.reader.readexactly(size + 2)
            yield chunk[:-2]
        await self.reader.readexactly(2)
