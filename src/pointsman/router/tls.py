"""TLS towards the clients; replicas are spoken to in plain HTTP."""

from __future__ import annotations

import ssl
from pathlib import Path

from pointsman.core.errors import InputError
from pointsman.core.files import read_file


def server_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.2 or later, HTTP/1.1 only. Raises InputError where the two are no pair, or locked."""
    for path in (certificate, key):
        read_file(path)  # says clearly what is not there
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # Without a password OpenSSL would ask the terminal for one.
        context.load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, ValueError) as error:
        raise InputError(
            f"{certificate} and {key}: are no certificate and its key in PEM, without a password:"
            f" {getattr(error, 'reason', None) or error}"
        ) from None
    return context
