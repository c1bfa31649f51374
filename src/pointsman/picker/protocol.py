"""Names that the endpoint picker and its gateway agree upon.

Source: kubernetes-sigs/gateway-api-inference-extension
``docs/proposals/004-endpoint-picker-protocol`` (v1.0.0, 2025-07-29).
"""

from __future__ import annotations

DESTINATION = "x-gateway-destination-endpoint"  # ip:port, or several, in order
DESTINATION_NAMESPACE = "envoy.lb"
SERVED = "x-gateway-destination-endpoint-served"  # in the same namespace
SUBSET = "x-gateway-destination-endpoint-subset"
SUBSET_NAMESPACE = "envoy.lb.subset_hint"

SERVICE = "envoy.service.ext_proc.v3.ExternalProcessor"
PROCESS = "Process"

# The key of Envoy's attributes in a message, and those that we ask for: CEL expressions. Sources:
# Envoy's documentation, "Attributes", and of its ext_proc filter.
ATTRIBUTES = "envoy.filters.http.ext_proc"
PATH_ATTRIBUTE = "request.path"
METHOD_ATTRIBUTE = "request.method"
ID_ATTRIBUTE = "request.id"
DETAILS_ATTRIBUTE = "response.code_details"
VIA_UPSTREAM = "via_upstream"  # the details of an answer that is the replica's own


def header_attribute(name: str) -> str:
    """The attribute that is a header of the request."""
    return f"request.headers['{name}']"


# What Envoy of ``envoy-config`` says of itself when it begins a stream: what the picker sees of
# answers. The protocol has no word for it, and one that is not seen is no answer that never came.
ANSWERS_KEY = "x-pointsman-answers"
