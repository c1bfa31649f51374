import pytest

pytest.importorskip("google.protobuf")

from pointsman.picker.wire import message

# Written by hand after protobuf's encoding: a tag is number * 8 + kind, 2 for what has a length
# (source: protobuf.dev, "Encoding"), with the numbers of Envoy's and gRPC's own declarations.


def test_a_body_from_envoy_is_read():
    sent = b"\x22\x06\x0a\x02hi\x10\x01\x5a\x04\x08\x02\x10\x04"
    read = message("ProcessingRequest").FromString(sent)
    assert read.WhichOneof("request") == "request_body"
    assert (read.request_body.body, read.request_body.end_of_stream) == (b"hi", True)
    assert read.protocol_config.request_body_mode == 2
    assert read.protocol_config.response_body_mode == 4


def test_attributes_are_maps_of_structs():
    value = b"\x1a\x01/"  # string_value of a Value
    entry = b"\x0a\x01p\x12\x03" + value
    struct = b"\x0a%c" % len(entry) + entry
    attribute = b"\x0a\x01f\x12%c" % len(struct) + struct
    read = message("ProcessingRequest").FromString(b"\x4a%c" % len(attribute) + attribute)
    assert read.attributes["f"].fields["p"].string_value == "/"


def test_an_answer_of_envoys_own_is_written():
    reply = message("ProcessingResponse")()
    reply.immediate_response.status.code = 503
    assert reply.SerializeToString() == b"\x3a\x05\x0a\x03\x08\xf7\x03"


def test_a_piece_given_back_is_written():
    reply = message("ProcessingResponse")()
    reply.request_body.response.body_mutation.streamed_response.body = b"x"
    piece = b"\x0a\x01x"
    mutation = b"\x1a\x03" + piece  # streamed_response
    common = b"\x1a\x05" + mutation  # body_mutation
    assert reply.SerializeToString() == b"\x1a\x09\x0a\x07" + common


def test_health_is_written():
    assert message("HealthCheckResponse")(status=2).SerializeToString() == b"\x08\x02"


def test_what_is_newer_than_the_declarations_is_read_past():
    read = message("ProcessingRequest").FromString(b"\xf8\x06\x01\x22\x04\x0a\x02hi")
    assert read.request_body.body == b"hi"
