"""TLS between Envoy and the picker: what either has to show or believe."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pointsman.core.errors import InputError
from pointsman.core.files import read_file
from pointsman.router.tls import server_context


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate with those that it rests on, and its key, in PEM, as gRPC takes them."""

    certificate: bytes
    key: bytes = field(repr=False)

    def credentials(self, grpc: Any) -> Any:
        """What a server of gRPC shows; it asks clients for nothing."""
        return grpc.ssl_server_credentials([(self.key, self.certificate)])


def identity_in(certificate: Path, key: Path) -> Identity:
    """What the two files hold. Raises InputError where they are no pair, or the key is locked."""
    server_context(certificate, key)  # gRPC would say it in its own log, if at all
    return Identity(read_file(certificate), read_file(key))


def check_authorities(path: Path) -> None:
    """Raises InputError for a file without a certificate to believe in."""
    read_file(path)  # says clearly what is not there
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cafile=path)
    except (ssl.SSLError, ValueError):
        raise InputError(f"{path}: has no certificate in PEM; expected one or more") from None
