"""What Envoy says to the picker, as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from pointsman.picker.protocol import (
    ATTRIBUTES,
    DESTINATION_NAMESPACE,
    DETAILS_ATTRIBUTE,
    ID_ATTRIBUTE,
    METHOD_ATTRIBUTE,
    PATH_ATTRIBUTE,
    SERVED,
    SUBSET,
    SUBSET_NAMESPACE,
)
from pointsman.router.messages import ClientRequest, Headers
from pointsman.router.prompt import CHAT, COMPLETIONS

_HEADER_ATTRIBUTE, _HEADER_END = "request.headers['", "']"


def headers_of(head: Any) -> Headers:
    """The headers of a head, names in lower case, those of HTTP/2 that begin with a colon too."""
    return [
        (each.key.lower().encode("latin-1", "replace"), each.raw_value or each.value.encode())
        for each in head.headers.headers
    ]


def attributes_of(message: Any) -> dict[str, str]:
    """The attributes that are texts; empty where none were sent."""
    attributes = message.attributes
    if ATTRIBUTES not in attributes:  # asking a map for what is not there would add it
        return {}
    return {name: value.string_value for name, value in attributes[ATTRIBUTES].fields.items()}


def request_of(
    headers: Headers | None, attributes: Mapping[str, str], body: bytes | bytearray
) -> ClientRequest:
    """The client's request, of its head; or, where that was not sent, of attributes.

    Where neither names a path it goes by the body: chats have messages.
    """
    if headers is None:
        path = attributes.get(PATH_ATTRIBUTE) or (CHAT if b'"messages"' in body else COMPLETIONS)
        method = attributes.get(METHOD_ATTRIBUTE) or "POST"
        headers = _headers_in(attributes)
    else:
        special = {name: value for name, value in headers if name.startswith(b":")}
        path = special.get(b":path", b"/").decode("latin-1")
        method = special.get(b":method", b"POST").decode("latin-1")
        headers = [pair for pair in headers if not pair[0].startswith(b":")]
    return ClientRequest(
        method.encode("latin-1", "replace"),
        path.encode("latin-1", "replace"),
        headers,
        body,
        keep_alive=True,
        http_1_1=True,
    )


def _headers_in(attributes: Mapping[str, str]) -> Headers:
    """Those of the head that were sent as attributes."""
    found = []
    for name, value in attributes.items():
        header = _header_of(name)
        if header is not None:
            found.append((header, value.encode()))
    if ID_ATTRIBUTE in attributes:  # Envoy's own, behind what the client says
        found.append((b"x-request-id", attributes[ID_ATTRIBUTE].encode()))
    return found


@lru_cache(maxsize=256)  # they are the same ones for every request
def _header_of(attribute: str) -> bytes | None:
    """The header that an attribute stands for."""
    if not attribute.startswith(_HEADER_ATTRIBUTE):
        return None
    name = attribute.removeprefix(_HEADER_ATTRIBUTE).removesuffix(_HEADER_END)
    return name.encode("latin-1", "replace")


def subset_of(message: Any) -> frozenset[str] | None:
    """The endpoints that a request may go to; None where the gateway sets no bounds.

    Source: the protocol's "Endpoint Subset": a list, which may be empty. One text with commas,
    as some gateways send it, is a list too.
    """
    told = _metadata(message, SUBSET_NAMESPACE, SUBSET)
    if told is None:
        return None
    listed: Iterable[str] = (
        [each.string_value for each in told.list_value.values]
        if told.WhichOneof("kind") == "list_value"
        else told.string_value.split(",")
    )
    return frozenset(each.strip() for each in listed if each.strip())


def served_by(message: Any) -> str | None:
    """The endpoint that Envoy took last, in the end; None where the gateway does not say."""
    told = _metadata(message, DESTINATION_NAMESPACE, SERVED)
    return told.string_value or None if told is not None else None


def details_of(message: Any) -> str | None:
    """How the answer came about, in Envoy's words; None where they were not sent."""
    return attributes_of(message).get(DETAILS_ATTRIBUTE)


def status_of(headers: Headers) -> int | None:
    """The status of an answer; None where it is none."""
    for name, value in headers:
        if name == b":status" and value.isdigit():
            return int(value)
    return None


def _metadata(message: Any, namespace: str, key: str) -> Any:
    if not message.HasField("metadata_context"):
        return None
    spaces = message.metadata_context.filter_metadata
    if namespace not in spaces:
        return None
    return spaces[namespace].fields.get(key)
