"""The keys that clients of the router show: a file of them, read again when it changes."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable
from pathlib import Path

from pointsman.core.errors import InputError, PointsmanError
from pointsman.core.files import read_file, stamp_of

MAX_KEY_BYTES = 1024
_SCHEME = b"bearer "
_VISIBLE = frozenset(range(0x21, 0x7F))


class ApiKeys:
    """One key a line; empty lines and those that begin with # count as none.

    Keys are kept and looked up as digests under a secret of this process, so that how long a
    comparison takes says nothing about a key. ``forwarded``: replicas see the clients' keys.
    Raises InputError for a file without a key or with a line that is none, MachineError for one
    that cannot be read.
    """

    def __init__(self, path: Path, *, forwarded: bool = False) -> None:
        self.forwarded = forwarded
        self._path = path
        self._secret = os.urandom(32)
        self._stamp = stamp_of(path)
        self._digests = self._read()
        if not self._digests:
            raise InputError(f"{path}: holds no key; expected one a line")

    def __len__(self) -> int:
        return len(self._digests)

    def accept(self, authorization: bytes | None) -> bool:
        """Whether this header's value shows a key."""
        if authorization is None or authorization[: len(_SCHEME)].lower() != _SCHEME:
            return False
        shown = self._digest(authorization[len(_SCHEME) :].strip())
        found = self._digests.get(shown, b"")
        return hmac.compare_digest(found, shown)

    def reload_if_changed(self, complain: Callable[[str], None]) -> None:
        """Read the file again if it was written since; see ``reload``."""
        if stamp_of(self._path) != self._stamp:
            self.reload(complain)

    def reload(self, complain: Callable[[str], None]) -> None:
        """Read the file again. From one that cannot be read nothing is learned: the keys stay.

        An empty file lets nobody in.
        """
        self._stamp = stamp_of(self._path)
        try:
            self._digests = self._read()
        except PointsmanError as error:
            complain(f"the keys stay as they were: {error}")
            return
        if not self._digests:
            complain(f"{self._path}: holds no key any more; nobody is let in")

    def _read(self) -> dict[bytes, bytes]:
        lines = read_file(self._path).split(b"\n")
        keys = [self._key(number, line) for number, line in enumerate(lines, start=1)]
        return {digest: digest for digest in map(self._digest, filter(None, keys))}

    def _key(self, number: int, line: bytes) -> bytes:
        key = line.strip()
        if not key or key.startswith(b"#"):
            return b""
        if len(key) > MAX_KEY_BYTES or not _VISIBLE.issuperset(key):
            raise InputError(
                f"{self._path} line {number}: is no key; expected at most {MAX_KEY_BYTES} visible"
                " ASCII characters without a space"
            )
        return key

    def _digest(self, key: bytes) -> bytes:
        return hashlib.blake2b(key, key=self._secret, digest_size=32).digest()
