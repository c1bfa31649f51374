"""Replicas that run already: nothing of them is started or stopped."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from pointsman.bench.engines.http_calls import call, is_ok
from pointsman.bench.engines.protocol import Engine, Instance, Launch
from pointsman.bench.missing import Missing
from pointsman.core.errors import MachineError, missing_field

_PREFIXES = {"vllm": b"\nvllm:", "sglang": b"\nsglang:", "llama.cpp": b"\nllamacpp:"}


class _Named(msgspec.Struct):
    id: str = ""


class _Models(msgspec.Struct):
    data: list[_Named] = msgspec.field(default_factory=list)


def attached(instance: Instance) -> Launch:
    """Where it runs."""
    if instance.url is None:
        raise missing_field("instance", "url", "that of a server which runs already")
    return Launch(instance.url.rstrip("/"), bootstrap_port=instance.bootstrap_port)


def to_start(instances: Iterable[Instance]) -> list[Instance]:
    """Those that do not run already."""
    return [each for each in instances if each.url is None]


def missing_at_urls(instances: Iterable[Instance]) -> list[Missing]:
    """Of those that run already: a server there that serves the model."""
    return [missing for each in instances if each.url is not None for missing in _missing_at(each)]


def _missing_at(instance: Instance) -> list[Missing]:
    url = attached(instance).url
    try:
        answer = call(url, "/v1/models")
    except MachineError:
        return [Missing(f"an answer of {url}", "start the server, or mend the URL")]
    names = _names(answer.body) if is_ok(answer) else []
    if instance.model.name in names:
        return []
    served = ", ".join(names) or f"/v1/models says {answer.status}"
    return [Missing(f"the model {instance.model.name} at {url}", f"it serves: {served}")]


def _names(body: bytes) -> list[str]:
    try:
        return [each.id for each in msgspec.json.decode(body, type=_Models).data]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return []


def engine_at(url: str, known: Iterable[Engine]) -> Engine | None:
    """That whose names its metrics have."""
    try:
        page = b"\n" + call(url, "/metrics").body
    except MachineError:
        return None
    for engine in known:
        if engine.signals is not None and _PREFIXES[engine.signals] in page:
            return engine
    return None
