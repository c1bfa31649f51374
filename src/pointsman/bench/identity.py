"""Which weights, tokenizer and number format were served, as evidence states them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from pointsman.bench.engines.machine import Machine
from pointsman.bench.engines.protocol import Model
from pointsman.evidence import envelope

_PIECE_BYTES = 1 << 22


class _Config(msgspec.Struct):
    """Of config.json of a model of Hugging Face's; older ones say ``torch_dtype``."""

    dtype: str | None = None
    torch_dtype: str | None = None


def identity_of(model: Model, machine: Machine) -> envelope.Model:
    """A file is known by its SHA-256, a model of the hub by its commit, a folder by a digest of its
    JSON files and of the names and sizes of all others. What cannot be seen from here is None."""
    path = Path(model.path).expanduser()
    if path.is_file():
        return _of_file(model, path)
    folder = path if path.is_dir() else _in_hub(model, machine.hub)
    if folder is None:
        return envelope.Model(
            id=model.path,
            revision=model.revision,
            tokenizer=model.tokenizer,
            tokenizer_revision=None,
            dtype=model.dtype,
        )
    revision = _listing_of(folder) if path.is_dir() else folder.name
    own = model.tokenizer is None
    return envelope.Model(
        id=model.path,
        revision=revision,
        tokenizer=model.path if own else model.tokenizer,
        tokenizer_revision=revision if own else None,
        dtype=model.dtype if model.dtype not in (None, "auto") else _dtype_of(folder),
    )


def _of_file(model: Model, path: Path) -> envelope.Model:
    """GGUF holds its tokenizer, and says what its weights are."""
    digest = f"sha256:{_sha256_of(path)}"
    return envelope.Model(
        id=path.name,
        revision=digest,
        tokenizer=model.tokenizer or path.name,
        tokenizer_revision=digest if model.tokenizer is None else None,
        dtype=model.dtype or _file_type_of(path),
    )


def _file_type_of(path: Path) -> str | None:
    """``general.file_type``, such as MOSTLY_F16; None where that cannot be read."""
    try:
        import gguf
    except ImportError:
        return None
    try:
        field = gguf.GGUFReader(path).get_field("general.file_type")
        return None if field is None else gguf.LlamaFileType(int(field.contents())).name
    except (ValueError, OSError, KeyError):
        return None


def _in_hub(model: Model, hub: Path) -> Path | None:
    """The snapshot in the hub's cache; its name is the commit."""
    at = hub / f"models--{model.path.replace('/', '--')}"
    reference = at / "refs" / (model.revision or "main")
    commit = reference.read_text().strip() if reference.is_file() else model.revision
    folder = at / "snapshots" / (commit or "main")
    return folder if folder.is_dir() else None


def _dtype_of(folder: Path) -> str | None:
    try:
        config = msgspec.json.decode((folder / "config.json").read_bytes(), type=_Config)
    except (OSError, msgspec.MsgspecError):
        return None
    return config.dtype or config.torch_dtype


def _listing_of(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(each for each in folder.iterdir() if each.is_file()):
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        if path.suffix == ".json":
            digest.update(path.read_bytes())
    return f"listing-sha256:{digest.hexdigest()}"


def _sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(_PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()
