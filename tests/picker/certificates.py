"""Certificates that the tests sign themselves."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def signed_for(name: str, folder: Path) -> tuple[Path, Path]:
    """A certificate for this name, which rests on nothing else, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not there to sign a certificate")
    certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", f"/CN={name}"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-addext", f"subjectAltName=DNS:{name}"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key
