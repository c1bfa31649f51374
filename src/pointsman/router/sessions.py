"""How requests of one session are told, and for how long it keeps its replica."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path

from pointsman.core.errors import InputError
from pointsman.core.files import read_file
from pointsman.dispatch.homes import DEFAULT_TTL_MS
from pointsman.router.prompt import DEFAULT_SESSION_HEADER

KEY_BYTES = 16
LEAST_CHARACTERS = 16


@dataclass(frozen=True, slots=True)
class Sessions:
    """As QuestionReader and Homes take them.

    ``key``: under which the names of sessions are hashed. Routers that have the same one tell the
    same sessions; it is made anew where none is given.
    """

    header: str = DEFAULT_SESSION_HEADER
    from_user: bool = False
    ttl_ms: float = DEFAULT_TTL_MS
    key: bytes = field(default_factory=lambda: os.urandom(KEY_BYTES), repr=False, compare=False)


def read_session_key(path: Path) -> bytes:
    """The key in a file, whitespace around it apart.

    Raises InputError for one that is too short to be a secret, MachineError for a file that cannot
    be read.
    """
    text = read_file(path).strip()
    if len(text) < LEAST_CHARACTERS:
        raise InputError(
            f"--session-key {path}: holds {len(text)} characters; expected at least"
            f" {LEAST_CHARACTERS}, the same in the file of every router"
        )
    return hashlib.blake2b(text, digest_size=KEY_BYTES).digest()
