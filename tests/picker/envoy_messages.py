"""What Envoy sends to a picker, made by hand."""

from __future__ import annotations

import json
from typing import Any

from pointsman.picker.protocol import (
    ATTRIBUTES,
    DESTINATION,
    DESTINATION_NAMESPACE,
    SERVED,
    SUBSET,
    SUBSET_NAMESPACE,
)
from pointsman.picker.wire import BUFFERED, NONE, message

COMPLETIONS = "/v1/completions"


def begun(request_mode: int = BUFFERED, answer_mode: int = NONE, subset=None, **attributes) -> Any:
    """A first message, without its part. ``subset``: endpoints, or None for no hint at all."""
    first = message("ProcessingRequest")()
    first.protocol_config.request_body_mode = request_mode
    first.protocol_config.response_body_mode = answer_mode
    fields = first.attributes[ATTRIBUTES].fields
    for name, value in {"request.path": COMPLETIONS, "request.method": "POST"}.items():
        fields[name].string_value = attributes.get(name.removeprefix("request."), value)
    if subset is not None:
        told = first.metadata_context.filter_metadata[SUBSET_NAMESPACE].fields[SUBSET]
        told.list_value.SetInParent()
        for endpoint in subset:
            told.list_value.values.add().string_value = endpoint
    return first


def body(data: Any, first: Any = None, *, is_end: bool = True) -> Any:
    """A piece of a request's body; what is no bytes becomes JSON."""
    part = message("ProcessingRequest")() if first is None else first
    part.request_body.body = data if isinstance(data, bytes) else json.dumps(data).encode()
    part.request_body.end_of_stream = is_end
    return part


def head(first: Any, *, is_end: bool = False, path: str = COMPLETIONS, **headers: str) -> Any:
    pairs = {":method": "GET" if is_end else "POST", ":path": path, **headers}
    _add(first.request_headers.headers, pairs)
    first.request_headers.end_of_stream = is_end
    return first


def trailers() -> Any:
    part = message("ProcessingRequest")()
    part.request_trailers.SetInParent()
    return part


def answer_head(
    status: int,
    served: str | None = None,
    details: str | None = "via_upstream",
    kind: str = "application/json",
    *,
    is_end: bool = False,
) -> Any:
    part = message("ProcessingRequest")()
    _add(part.response_headers.headers, {":status": str(status), "content-type": kind})
    part.response_headers.end_of_stream = is_end
    if served is not None:
        spaces = part.metadata_context.filter_metadata
        spaces[DESTINATION_NAMESPACE].fields[SERVED].string_value = served
    if details is not None:
        part.attributes[ATTRIBUTES].fields["response.code_details"].string_value = details
    return part


def answer_body(data: bytes, *, is_end: bool = False) -> Any:
    part = message("ProcessingRequest")()
    part.response_body.body = data
    part.response_body.end_of_stream = is_end
    return part


def destinations(reply: Any) -> list[str]:
    """The endpoints of the metadata, in order."""
    told = reply.dynamic_metadata.fields[DESTINATION_NAMESPACE].struct_value
    return told.fields[DESTINATION].string_value.split(",")


def headers_set(mutation: Any) -> dict[str, str]:
    return {option.header.key: option.header.raw_value.decode() for option in mutation.set_headers}


def refused(reply: Any) -> tuple[int, str]:
    """Status and code of an answer that Envoy is to give itself."""
    assert reply.WhichOneof("response") == "immediate_response"
    immediate = reply.immediate_response
    return immediate.status.code, json.loads(immediate.body)["error"]["code"]


def _add(headers: Any, pairs: dict[str, str]) -> None:
    for name, value in pairs.items():
        pair = headers.headers.add()
        pair.key, pair.raw_value = name.replace("_", "-"), value.encode()
