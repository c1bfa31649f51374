"""The published schema of evidence files."""

from __future__ import annotations

from typing import Any

import msgspec

from pointsman.evidence.envelope import SCHEMA, Envelope

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema_document() -> dict[str, Any]:
    """JSON Schema of ``Envelope``; a copy is docs/evidence.schema.json."""
    title = f"{SCHEMA}: a measured serving group, or a mechanism run"
    return {"$schema": _DIALECT, "title": title, **msgspec.json.schema(Envelope)}


def schema_text() -> str:
    """The same as text with a final newline."""
    encoded = msgspec.json.encode(schema_document(), order="deterministic")
    return msgspec.json.format(encoded, indent=2).decode() + "\n"
