"""A request's JSON body by its fields, whose values stay as they came, byte for byte."""

from __future__ import annotations

import msgspec

Fields = dict[str, msgspec.Raw]

_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENCODER = msgspec.json.Encoder()
_COUNT = msgspec.json.Decoder(int | None)
_NOT_OF_ONE_TOKEN = ("stream_options", "min_tokens")
_LIST = msgspec.json.Decoder(list[msgspec.Raw])


def fields_of_body(body: bytes | bytearray) -> Fields:
    """The fields of a body that was read before: it is an object."""
    return _DECODER.decode(body)


def body_of(fields: Fields) -> bytes:
    """The body with these fields."""
    return _ENCODER.encode(fields)


def value(text: object) -> msgspec.Raw:
    """A value of ours."""
    return msgspec.Raw(_ENCODER.encode(text))


def for_prefill(fields: Fields) -> Fields:
    """The request as a prefill: its answer is one token, no stream.

    Source: llm-d-router, pkg/sidecar/proxy/connector_nixlv2.go, for the limits and the stream;
    vLLM refuses a ``min_tokens`` above ``max_tokens``.
    """
    asked = {name: raw for name, raw in fields.items() if name not in _NOT_OF_ONE_TOKEN}
    asked |= {"max_tokens": value(1), "stream": value(False)}
    if "max_completion_tokens" in fields or "messages" in fields:
        asked["max_completion_tokens"] = value(1)
    return asked


def prompts_in(fields: Fields) -> int | None:
    """How many prompts a list of them has; None for one prompt by itself."""
    prompt = bytes(fields.get("prompt", msgspec.Raw(b'""'))).lstrip()
    if not prompt.startswith(b"["):
        return None
    items = _LIST.decode(prompt)
    is_of_token_ids = bool(items) and bytes(items[0]).lstrip()[:1] not in (b'"', b"[")
    return None if is_of_token_ids else len(items)


def answers_in(fields: Fields) -> int | None:
    """How many answers are asked for; None for one prompt's one answer.

    Source: sglang, sgl-model-gateway/src/routers/http/pd_router.rs: a list of prompts, else ``n``
    above 1.
    """
    prompts = prompts_in(fields)
    if prompts is not None:
        return prompts
    try:
        count = _COUNT.decode(fields.get("n", msgspec.Raw(b"1")))
    except msgspec.MsgspecError:
        return None  # the replica will say so
    return count if count is not None and count > 1 else None
