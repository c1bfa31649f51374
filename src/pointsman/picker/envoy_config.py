"""An Envoy for one machine that asks the endpoint picker: its whole configuration.

What stands here and is not Envoy's default:

- the destination is taken from the picker's metadata, never from a header, which a client could
  send while the picker is away;
- retries only where the replica has seen nothing of the request: what may have begun is generated
  once;
- 200 ms for the picker's answer, 1,024 requests at a time, 1 MiB of body and a second between a
  broken answer and the end of its connection are all too little or too much here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pointsman.picker.protocol import (
    ANSWERS_KEY,
    DESTINATION,
    DESTINATION_NAMESPACE,
    DETAILS_ATTRIBUTE,
    ID_ATTRIBUTE,
    METHOD_ATTRIBUTE,
    PATH_ATTRIBUTE,
    SERVED,
    header_attribute,
)
from pointsman.router.upstream import ReplicaAddress

Json = dict[str, Any]

FAIL_OPEN, FAIL_CLOSE = "FailOpen", "FailClose"
FAILURE_MODES = (FAIL_OPEN, FAIL_CLOSE)

# What the picker sees of answers.
NOTHING, HEADS, BODIES = "none", "heads", "bodies"
ANSWERS = (NOTHING, HEADS, BODIES)

_REPLICAS = "replicas"  # the cluster of them
_API = "type.googleapis.com/envoy"
_HTTP_OPTIONS = f"{_API}.extensions.upstreams.http.v3.HttpProtocolOptions"
_MOST = 1 << 20  # of anything that is counted: no limit in practice
_CONNECT_TIMEOUT_S = 5


@dataclass(frozen=True, slots=True)
class EnvoySettings:
    """``picker`` and ``listen``: host and port. ``failure_mode``: what becomes of requests that the
    picker does not answer. ``answers``: what the picker sees of them, one of ANSWERS.
    ``is_duplex``: bodies go to the picker in pieces, as gateways do it; else whole, in one message.
    ``admin``: host and port of Envoy's own page. ``endpoints``: the file, in full, that says which
    replicas there are; else they are these for good. ``picker_ca``: the file, in full, of the
    certificates that the picker's own must rest on; None: it speaks no TLS. ``picker_name``: what
    that must be for; None: for anybody."""

    listen: tuple[str, int]
    picker: tuple[str, int]
    replicas: tuple[ReplicaAddress, ...]
    failure_mode: str = FAIL_OPEN
    answers: str = HEADS
    is_duplex: bool = False
    retries: int = 1
    message_timeout_ms: float = 5_000.0
    max_body_bytes: int = 64 << 20
    session_header: str = "x-session-id"
    admin: tuple[str, int] | None = None
    endpoints: Path | None = None
    picker_ca: Path | None = None
    picker_name: str | None = None


def envoy_config(settings: EnvoySettings) -> Json:
    """The bootstrap, as JSON shows it."""
    config: Json = {
        "static_resources": {
            "listeners": [_listener(settings)],
            "clusters": [_replicas(settings), _picker(settings)],
        }
    }
    if settings.admin is not None:
        config["admin"] = {"address": _address(*settings.admin)}
    if settings.endpoints is not None:
        config["node"] = {
            "id": "pointsman",
            "cluster": "pointsman",
        }  # who asks, of whoever is asked
    return config


def endpoints_of(replicas: Sequence[ReplicaAddress]) -> Json:
    """What stands in the file of endpoints: an answer of endpoint discovery, as JSON shows it.

    Source: Envoy's documentation, "Configuration: Dynamic from filesystem".
    """
    kind = f"{_API}.config.endpoint.v3.ClusterLoadAssignment"
    members = [(each.host, each.port) for each in replicas]
    return {"resources": [{"@type": kind, **_assignment(_REPLICAS, members)}]}


def _listener(settings: EnvoySettings) -> Json:
    manager = {
        "@type": f"{_API}.extensions.filters.network.http_connection_manager.v3"
        ".HttpConnectionManager",
        "stat_prefix": "pointsman",
        "stream_idle_timeout": "600s",
        "delayed_close_timeout": "0.1s",
        "route_config": {
            "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [_route(settings)]}]
        },
        "http_filters": [
            {"name": "pointsman.pick", "typed_config": _filter(settings)},
            *([] if settings.is_duplex else [_holding_back(settings)]),
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{_API}.extensions.filters.http.router.v3.Router"},
            },
        ],
    }
    return {
        "name": "pointsman",
        "address": _address(*settings.listen),
        "per_connection_buffer_limit_bytes": settings.max_body_bytes,
        "filter_chains": [
            {
                "filters": [
                    {
                        "name": "envoy.filters.network.http_connection_manager",
                        "typed_config": manager,
                    }
                ]
            }
        ],
    }


def _route(settings: EnvoySettings) -> Json:
    return {
        "match": {"prefix": "/"},
        "route": {
            "cluster": _REPLICAS,
            "timeout": "0s",  # an answer may take as long as it takes
            "retry_policy": {
                "retry_on": "connect-failure,refused-stream,reset-before-request",
                "num_retries": settings.retries,
                "retry_back_off": {"base_interval": "0.001s", "max_interval": "0.01s"},
            },
        },
    }


def _filter(settings: EnvoySettings) -> Json:
    """What is sent to the picker, how long it may take, and what is believed of its answer."""
    return {
        "@type": f"{_API}.extensions.filters.http.ext_proc.v3.ExternalProcessor",
        "grpc_service": {
            "envoy_grpc": {"cluster_name": "picker"},
            "timeout": "0s",
            "initial_metadata": [{"key": ANSWERS_KEY, "value": settings.answers}],
        },
        "failure_mode_allow": settings.failure_mode == FAIL_OPEN,
        "message_timeout": _seconds(settings.message_timeout_ms),
        "processing_mode": _processing(settings),
        "request_attributes": [
            PATH_ATTRIBUTE,
            METHOD_ATTRIBUTE,
            ID_ATTRIBUTE,
            header_attribute(settings.session_header),
            header_attribute("content-encoding"),
        ],
        "response_attributes": [DETAILS_ATTRIBUTE],
        "metadata_options": {
            "forwarding_namespaces": {"untyped": [DESTINATION_NAMESPACE]},
            "receiving_namespaces": {"untyped": [DESTINATION_NAMESPACE]},
        },
    }


def _holding_back(settings: EnvoySettings) -> Json:
    """Heads that the picker is not sent go on at once, and a replica would be chosen before its
    answer is there: they wait here until their body has passed it."""
    buffer = {
        "@type": f"{_API}.extensions.filters.http.buffer.v3.Buffer",
        "max_request_bytes": settings.max_body_bytes,
    }
    return {"name": "envoy.filters.http.buffer", "typed_config": buffer}


def _processing(settings: EnvoySettings) -> Json:
    """One message a request, where bodies come whole."""
    duplex = "FULL_DUPLEX_STREAMED"
    reads_bodies = settings.answers == BODIES
    return {
        "request_header_mode": "SEND" if settings.is_duplex else "SKIP",
        "request_body_mode": duplex if settings.is_duplex else "BUFFERED",
        "request_trailer_mode": "SEND" if settings.is_duplex else "SKIP",
        "response_header_mode": "SKIP" if settings.answers == NOTHING else "SEND",
        "response_body_mode": duplex if reads_bodies else "NONE",
        "response_trailer_mode": "SEND" if reads_bodies else "SKIP",
    }


def _replicas(settings: EnvoySettings) -> Json:
    at_destination = {"key": DESTINATION_NAMESPACE, "path": [{"key": DESTINATION}]}
    override = {
        "@type": f"{_API}.extensions.load_balancing_policies.override_host.v3.OverrideHost",
        "override_host_sources": [{"metadata": at_destination}],
        "selected_host_key": {"key": DESTINATION_NAMESPACE, "path": [{"key": SERVED}]},
        "fallback_policy": _policies(
            "envoy.load_balancing_policies.least_request",
            {"@type": f"{_API}.extensions.load_balancing_policies.least_request.v3.LeastRequest"},
        ),
    }
    return {
        **_cluster(_REPLICAS, _members(settings)),
        "per_connection_buffer_limit_bytes": settings.max_body_bytes,
        "load_balancing_policy": _policies("envoy.load_balancing_policies.override_host", override),
    }


def _members(settings: EnvoySettings) -> Json:
    """Those of the settings; or of a file, which Envoy reads again when a file is moved into its
    folder, as also Kubernetes does with a file of a ConfigMap."""
    if settings.endpoints is None:
        return _fixed(_REPLICAS, [(each.host, each.port) for each in settings.replicas])
    source = {
        "path": str(settings.endpoints),
        "watched_directory": {"path": str(settings.endpoints.parent)},
    }
    config = {"resource_api_version": "V3", "path_config_source": source}
    return {"type": "EDS", "eds_cluster_config": {"eds_config": config}}


def _picker(settings: EnvoySettings) -> Json:
    options = {"@type": _HTTP_OPTIONS, "explicit_http_config": {"http2_protocol_options": {}}}
    secret = {} if settings.picker_ca is None else {"transport_socket": _tls(settings)}
    return {
        **_cluster("picker", _fixed("picker", [settings.picker])),
        "typed_extension_protocol_options": {_HTTP_OPTIONS.rpartition("/")[2]: options},
        **secret,
    }


def _tls(settings: EnvoySettings) -> Json:
    """Names are compared only where one is asked for: Envoy goes to an address, not to a name."""
    believed: Json = {"trusted_ca": {"filename": str(settings.picker_ca)}}
    named: Json = {}
    if settings.picker_name is not None:
        name = {"san_type": "DNS", "matcher": {"exact": settings.picker_name}}
        believed["match_typed_subject_alt_names"] = [name]
        named = {"sni": settings.picker_name}
    config = {
        "@type": f"{_API}.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        **named,
        "common_tls_context": {"alpn_protocols": ["h2"], "validation_context": believed},
    }
    return {"name": "envoy.transport_sockets.tls", "typed_config": config}


def _policies(name: str, config: Json) -> Json:
    return {"policies": [{"typed_extension_config": {"name": name, "typed_config": config}}]}


def _cluster(name: str, members: Json) -> Json:
    limits = ("max_connections", "max_pending_requests", "max_requests", "max_retries")
    return {
        "name": name,
        **members,
        "connect_timeout": f"{_CONNECT_TIMEOUT_S}s",
        "circuit_breakers": {"thresholds": [dict.fromkeys(limits, _MOST)]},
    }


def _fixed(name: str, members: Sequence[tuple[str, int]]) -> Json:
    return {"type": "STATIC", "load_assignment": _assignment(name, members)}


def _assignment(name: str, members: Sequence[tuple[str, int]]) -> Json:
    endpoints = [{"endpoint": {"address": _address(*member)}} for member in members]
    return {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]}


def _address(host: str, port: int) -> Json:
    return {"socket_address": {"address": host, "port_value": port}}


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000.0:.3f}s"
