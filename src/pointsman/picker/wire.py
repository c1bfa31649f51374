"""The messages of Envoy's external processing and of gRPC's health checks.

They are declared here, when first needed, in a descriptor pool of our own: nothing generated is
tied to one version of protobuf, and nobody else's declarations are in the way. On the wire a field
is its number and its kind; names of messages are not sent, and enumerations are integers.

Sources of the numbers: envoyproxy/envoy ``api/envoy/service/ext_proc/v3/external_processor.proto``,
``api/envoy/config/core/v3/base.proto``, ``api/envoy/type/v3/http_status.proto``;
protocolbuffers/protobuf ``src/google/protobuf/struct.proto``; grpc/grpc-proto
``grpc/health/v1/health.proto``. Fields that nobody here reads or writes are left out.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from pointsman.core.errors import MachineError

PACKAGE = "pointsman.wire"

# name=number:kind, with * for repeated, {kind} for a map from strings, and |NAME for a oneof.
_DECLARED = {
    # protobuf
    "Struct": "fields=1:{Value}",
    "ListValue": "values=1:Value*",
    "Value": "number_value=2:double|kind string_value=3:string|kind bool_value=4:bool|kind"
    " struct_value=5:Struct|kind list_value=6:ListValue|kind",
    # Envoy, both ways
    "HeaderValue": "key=1:string value=2:string raw_value=3:bytes",
    "HeaderMap": "headers=1:HeaderValue*",
    "Metadata": "filter_metadata=1:{Struct}",
    # from Envoy
    "ProtocolConfiguration": "request_body_mode=1:int32 response_body_mode=2:int32",
    "HttpHeaders": "headers=1:HeaderMap end_of_stream=3:bool",
    "HttpBody": "body=1:bytes end_of_stream=2:bool",
    "HttpTrailers": "trailers=1:HeaderMap",
    "ProcessingRequest": "request_headers=2:HttpHeaders|request"
    " response_headers=3:HttpHeaders|request request_body=4:HttpBody|request"
    " response_body=5:HttpBody|request request_trailers=6:HttpTrailers|request"
    " response_trailers=7:HttpTrailers|request metadata_context=8:Metadata attributes=9:{Struct}"
    " observability_mode=10:bool protocol_config=11:ProtocolConfiguration",
    # to Envoy
    "HeaderValueOption": "header=1:HeaderValue append_action=3:int32",
    "HeaderMutation": "set_headers=1:HeaderValueOption* remove_headers=2:string*",
    "StreamedBodyResponse": "body=1:bytes end_of_stream=2:bool",
    "BodyMutation": "streamed_response=3:StreamedBodyResponse",
    "CommonResponse": "header_mutation=2:HeaderMutation body_mutation=3:BodyMutation",
    "HeadersResponse": "response=1:CommonResponse",
    "BodyResponse": "response=1:CommonResponse",
    "TrailersResponse": "header_mutation=1:HeaderMutation",
    "HttpStatus": "code=1:int32",
    "ImmediateResponse": "status=1:HttpStatus headers=2:HeaderMutation body=3:bytes"
    " details=5:string",
    "ProcessingResponse": "request_headers=1:HeadersResponse|response"
    " response_headers=2:HeadersResponse|response request_body=3:BodyResponse|response"
    " response_body=4:BodyResponse|response request_trailers=5:TrailersResponse|response"
    " response_trailers=6:TrailersResponse|response"
    " immediate_response=7:ImmediateResponse|response dynamic_metadata=8:Struct",
    # gRPC's health checks
    "HealthCheckRequest": "service=1:string",
    "HealthCheckResponse": "status=1:int32",
}

# Of ProtocolConfiguration. Source: envoyproxy/envoy
# ``api/envoy/extensions/filters/http/ext_proc/v3/processing_mode.proto``.
NONE, STREAMED, BUFFERED, BUFFERED_PARTIAL, FULL_DUPLEX_STREAMED = 0, 1, 2, 3, 4
MODES = ("NONE", "STREAMED", "BUFFERED", "BUFFERED_PARTIAL", "FULL_DUPLEX_STREAMED", "GRPC")

OVERWRITE_IF_EXISTS_OR_ADD = 2  # of HeaderValueOption

# Of HealthCheckResponse.
SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3


def message(name: str) -> Any:
    """The class of a message, by the name that its sources give it.

    Raises MachineError where protobuf is not installed.
    """
    return _classes()[name]


@cache
def _classes() -> dict[str, Any]:
    try:
        from google.protobuf import descriptor_pool, message_factory
    except ImportError:
        raise MachineError(
            "protobuf is not installed; install it with: pip install 'pointsman[envoy]'"
        ) from None
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file())
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in _DECLARED
    }


def _file() -> Any:
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(
        name="pointsman/wire.proto", package=PACKAGE, syntax="proto3"
    )
    for name, fields in _DECLARED.items():
        declared = file.message_type.add(name=name)
        for field in fields.split():
            _declare(declared, field)
    return file


def _declare(declared: Any, text: str) -> None:
    name, _, rest = text.partition("=")
    number, _, kind = rest.partition(":")
    kind, _, oneof = kind.partition("|")
    is_map, is_repeated = kind.startswith("{"), kind.endswith("*")
    if is_map:
        kind = _declare_entry(declared, name, kind.strip("{}"))
    field = declared.field.add(name=name, number=int(number))
    field.label = field.LABEL_REPEATED if is_map or is_repeated else field.LABEL_OPTIONAL
    _set_kind(field, kind.rstrip("*"))
    if oneof:
        names = [each.name for each in declared.oneof_decl]
        if oneof not in names:
            names.append(declared.oneof_decl.add(name=oneof).name)
        field.oneof_index = names.index(oneof)


def _declare_entry(declared: Any, name: str, kind: str) -> str:
    """A map is a list of entries. Source: protobuf's language guide, "Maps"."""
    entry = declared.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
    entry.options.map_entry = True
    for number, (part, part_kind) in enumerate((("key", "string"), ("value", kind)), start=1):
        _set_kind(entry.field.add(name=part, number=number, label=1), part_kind)
    return f"{declared.name}.{entry.name}"


def _set_kind(field: Any, kind: str) -> None:
    scalar = getattr(field, f"TYPE_{kind.upper()}", None)
    if scalar is not None:
        field.type = scalar
    else:
        field.type = field.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{kind}"
