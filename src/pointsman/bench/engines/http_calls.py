"""Calls of an engine's HTTP that are few and wait for nobody: its health, version and cache."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec

from pointsman.core.errors import MachineError, wrong_value

TIMEOUT_S = 30.0
_CONNECTIONS = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body."""

    status: int
    body: bytes

    def text_of(self, field: str) -> str | None:
        """A text in its JSON object; None: there is none."""
        try:
            found = msgspec.json.decode(self.body, type=dict[str, msgspec.Raw]).get(field)
            return None if found is None else msgspec.json.decode(found, type=str)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None


def call(
    url: str, path: str, method: str = "GET", body: object = None, timeout_s: float = TIMEOUT_S
) -> Answer:
    """What it answers to this, by no proxy. Raises MachineError where it does not."""
    parts = urlsplit(url)
    try:
        kind, host, port = _CONNECTIONS[parts.scheme], parts.hostname or "", parts.port
    except (KeyError, ValueError):
        host = ""
    if not host:
        raise wrong_value("engine", "url", url, "http://HOST:PORT")
    connection = kind(host, port, timeout=timeout_s)
    content = None if body is None else json.dumps(body).encode()
    try:
        headers = {} if content is None else {"content-type": "application/json"}
        connection.request(method, parts.path.rstrip("/") + path, content, headers)
        response = connection.getresponse()
        return Answer(response.status, response.read())
    except (OSError, http.client.HTTPException) as error:
        said = str(error) or type(error).__name__
        raise MachineError(f"{method} {url}{path}: no answer: {said}; see its log") from None
    finally:
        connection.close()


def said_at(url: str, path: str, field: str) -> str | None:
    """That text of the object that is there; None: no answer, or none with it."""
    try:
        answer = call(url, path)
    except MachineError:
        return None
    return answer.text_of(field) if answer.status == http.HTTPStatus.OK else None


def is_ok(answer: Answer) -> bool:
    """Whether it is a 200."""
    return answer.status == http.HTTPStatus.OK
