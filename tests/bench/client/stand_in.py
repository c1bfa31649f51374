"""A stand-in for an engine: an HTTP server on loopback that does as its script says.

It generates nothing and has no model. Its tokenizer counts words; requests without an id are the
client's own first questions, which it answers by itself with usage.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import uvloop

CHUNKED = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
    b"transfer-encoding: chunked\r\n%b\r\n"
)
DONE = b"data: [DONE]\n\n"
BACKLOG = 1024
DEADLINE_S = 60


def run(main: Awaitable[Any]) -> Any:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(asyncio.wait_for(main, DEADLINE_S))


def event(content: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def counts(prompt: int, output: int, cached: int | None = None) -> dict[str, Any]:
    details = {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    return {"prompt_tokens": prompt, "completion_tokens": output, **details}


def text(words: str, finish: str | None = None, **more: Any) -> bytes:
    """A chunk of a completion."""
    return event({"choices": [{"index": 0, "text": words, "finish_reason": finish}], **more})


def delta(finish: str | None = None, **content: Any) -> bytes:
    """A chunk of a chat."""
    return event({"choices": [{"index": 0, "delta": content, "finish_reason": finish}]})


def usage(prompt: int, output: int, cached: int | None = None) -> bytes:
    """The chunk without choices."""
    return event({"choices": [], "usage": counts(prompt, output, cached)})


@dataclass
class Asked:
    """A request, as it came in; ``number`` is its place in the load."""

    number: int
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def words(self) -> int:
        """Of the prompt: its tokens."""
        return len(prompt_of(self.body).split())


@dataclass
class Wire:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def begin(self, headers: bytes = b"") -> None:
        await self.send(CHUNKED % headers)

    async def say(self, *events: bytes, after_s: float = 0.0) -> None:
        """Events in one write, each a chunk of HTTP."""
        if after_s:
            await asyncio.sleep(after_s)
        await self.send(b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in events))

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def answer(self, status: bytes, body: Any, headers: bytes = b"") -> None:
        """A whole answer."""
        data = json.dumps(body).encode()
        head = b"HTTP/1.1 %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n%b\r\n"
        await self.send(head % (status, len(data), headers) + data)

    def die(self) -> None:
        self.writer.transport.abort()


Script = Callable[[Asked, Wire], Awaitable[None]]


async def answers_at_once(asked: Asked, wire: Wire) -> None:
    """As many tokens as were asked for, a chunk each, in reads of their own as a rule."""
    tokens = asked.body["max_tokens"]
    await wire.begin()
    for place in range(tokens):
        finish = "length" if place == tokens - 1 else None
        await wire.say(text(" x", finish))
        await asyncio.sleep(0)
    await wire.say(usage(asked.words, tokens), DONE)
    await wire.end()


def takes(seconds: float) -> Script:
    """One token after so long, then the rest."""

    async def script(asked: Asked, wire: Wire) -> None:
        await asyncio.sleep(seconds)
        await answers_at_once(asked, wire)

    return script


async def never_ends(asked: Asked, wire: Wire) -> None:
    """A token, and then nothing until the client leaves."""
    await wire.begin()
    await wire.say(text("a"))
    await wire.reader.read(1)


def every(period: int, otherwise: Script) -> Script:
    """A script for every ``period``-th request, the first among them."""

    async def script(asked: Asked, wire: Wire) -> None:
        await (otherwise if asked.number % period == 0 else answers_at_once)(asked, wire)

    return script


@dataclass
class StandInEngine:
    """``tokens_a_word`` is what its usage counts; its tokenizer counts one."""

    script: Script = answers_at_once
    has_tokenizer: bool = True
    tokens_a_word: int = 1
    overhead: int = 0  # tokens around every prompt
    asked: list[Asked] = field(default_factory=list)
    open_now: int = 0  # requests of the load
    most_open: int = 0
    connections: int = 0

    async def __aenter__(self) -> StandInEngine:
        self._tasks: set[asyncio.Task] = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=BACKLOG)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        self.connections += 1
        try:
            while not writer.is_closing():
                await self._serve_one(Wire(reader, writer))
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _serve_one(self, wire: Wire) -> None:
        path, headers, body = await _read(wire.reader)
        if path == "/tokenize":
            await self._count(body, wire)
        elif "x-request-id" not in headers:
            tokens = self.overhead + self.tokens_a_word * len(prompt_of(body).split())
            await wire.begin()
            await wire.say(text(" x", "length"), usage(tokens, 1), DONE)
            await wire.end()
        else:
            asked = Asked(int(headers["x-request-id"].rpartition("-")[2]), headers, body)
            self.asked.append(asked)
            self.open_now += 1
            self.most_open = max(self.most_open, self.open_now)
            try:
                await self.script(asked, wire)
            finally:
                self.open_now -= 1

    async def _count(self, body: dict[str, Any], wire: Wire) -> None:
        if not self.has_tokenizer:
            await wire.answer(b"404 Not Found", {"detail": "Not Found"})
            return
        tokens = self.overhead + len(body["prompt"].split())
        await wire.answer(b"200 OK", {"count": tokens, "tokens": list(range(tokens))})


def prompt_of(body: dict[str, Any]) -> str:
    if "prompt" in body:
        return body["prompt"]
    return "".join(message["content"] for message in body["messages"])


async def _read(reader: asyncio.StreamReader) -> tuple[str, dict[str, str], dict[str, Any]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
    body = await reader.readexactly(int(headers["content-length"]))
    return head[0].split(" ")[1], headers, json.loads(body)
