"""What is said but for that something is compiled: that depends on what ran before."""

from __future__ import annotations


def without_compiling(said: str) -> str:
    """The other lines."""
    lines = said.splitlines(keepends=True)
    return "".join(line for line in lines if "compiling the " not in line)
