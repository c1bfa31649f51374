"""The file that a policy of the user's comes from, as a log names it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pointsman.core.errors import MachineError


def policy_file(name: str) -> Path | None:
    """The file of ``FILE.py:NAME``; None for a policy of ours."""
    head = name.partition(":")[0]
    return Path(head) if head.endswith(".py") else None


def policy_sha256(name: str) -> str | None:
    """The SHA-256 of the policy's file as it is now; None for a policy of ours.

    Raises MachineError where the file cannot be read.
    """
    path = policy_file(name)
    if path is None:
        return None
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise MachineError(f"cannot read {path}: {error.strerror}") from error
