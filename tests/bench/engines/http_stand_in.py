"""What the stand-ins for vLLM and SGLang have in common: their HTTP, and where they are found."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HERE = Path(__file__).parent
Route = Callable[[dict], tuple[int, object]]


class Routes(BaseHTTPRequestHandler):
    """A route answers with a status and an object, or a text, or events one by one."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._answer("GET")

    def do_POST(self) -> None:
        self._answer("POST")

    def _answer(self, method: str) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        route = self.server.routes.get(f"{method} {self.path.partition('?')[0]}")
        status, what = (404, {}) if route is None else route(json.loads(body or b"{}"))
        if isinstance(what, Iterator):
            self._stream(what)
            return
        content = what.encode() if isinstance(what, str) else json.dumps(what).encode()
        self.send_response(status)
        self.send_header(
            "content-type", "text/plain" if isinstance(what, str) else "application/json"
        )
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, events: Iterator[object]) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.close_connection = True  # unless all of it is taken
        with suppress(OSError):
            for event in events:
                line = b"data: %b\n\n" % json.dumps(event).encode()
                self.wfile.write(b"%x\r\n%b\r\n" % (len(line), line))
            self.wfile.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
            self.close_connection = False

    def log_message(self, *_) -> None:
        pass


def serving(host: str, port: int, routes: Mapping[str, Route]) -> ThreadingHTTPServer:
    server = ThreadingHTTPServer((host, port), Routes)
    server.daemon_threads = True
    server.routes = routes
    return server


class Loading:
    """Health: 503 while it loads, for as many looks, and then 200."""

    def __init__(self, looks: int) -> None:
        self.left = looks

    def __call__(self, _: dict) -> tuple[int, object]:
        self.left -= 1
        return (503, {}) if self.left >= 0 else (200, "")


def program(path: Path, command: str) -> Path:
    """A shell script of that command, with what it is given."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    path.chmod(0o755)
    return path


def python_with(folder: Path, packages: Mapping[str, str]) -> Path:
    """A Python that has these packages installed, as far as their metadata say."""
    site = folder / "site"
    for name, version in packages.items():
        metadata = site / f"{name.replace('-', '_')}-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir(parents=True)
        metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    paths = os.pathsep.join([str(site), str(HERE.parents[2])])
    return program(folder / "bin" / "python", f"env PYTHONPATH={paths} {sys.executable}")
