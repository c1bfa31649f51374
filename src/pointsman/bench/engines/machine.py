"""What a machine has that engines need, and what of it is missing."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pointsman.bench.missing import Missing

_PROBE_DEADLINE_S = 60.0
_FIND_MODULES = (
    "import importlib.util, sys;"
    " print(*(name for name in sys.argv[1:] if importlib.util.find_spec(name) is None))"
)
_FIND_VERSION = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"


@dataclass(frozen=True, slots=True)
class Machine:
    """``gpus``: as CUDA_VISIBLE_DEVICES would have them. ``hub``: where models of the hub lie."""

    gpus: tuple[str, ...]
    hub: Path

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Machine:
        """This machine, as far as this environment lets it be used."""
        return cls(visible_gpus(environment), hub_folder(environment))


def hub_folder(environment: Mapping[str, str]) -> Path:
    """Source: huggingface_hub, the variables HF_HUB_CACHE, HF_HOME and XDG_CACHE_HOME."""
    if "HF_HUB_CACHE" in environment:
        return Path(environment["HF_HUB_CACHE"])
    cache = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(environment.get("HF_HOME") or f"{cache}/huggingface") / "hub"


def visible_gpus(environment: Mapping[str, str]) -> tuple[str, ...]:
    """As CUDA would show them: those of the driver's tool, cut by CUDA_VISIBLE_DEVICES."""
    tool = shutil.which("nvidia-smi", path=environment.get("PATH"))
    if tool is None:
        return ()
    said = _said_by([tool, "--query-gpu=index", "--format=csv,noheader"])
    there = tuple((said or "").split())
    allowed = environment.get("CUDA_VISIBLE_DEVICES")
    if allowed is None or not there:
        return there
    return tuple(each.strip() for each in allowed.split(",") if each.strip())


def missing_modules(python: str, modules: Sequence[str], fix: str) -> list[Missing]:
    """Those that this Python cannot import; nothing of them is run."""
    said = _said_by([python, "-c", _FIND_MODULES, *modules])
    if said is None:
        return [Missing(f"a Python at {python}", fix)]
    return [Missing(f"the module {name} of {python}", fix) for name in said.split()]


def installed_version(python: str, package: str) -> str | None:
    """As the package's metadata say; None: it is not installed there."""
    said = _said_by([python, "-c", _FIND_VERSION, package])
    return said.strip() if said else None


def missing_model(path: str, revision: str | None, hub: Path) -> list[Missing]:
    """A model as Hugging Face's files: a folder, or an id whose files are in the hub's cache."""
    folder = Path(path).expanduser()
    if folder.is_dir():
        if (folder / "config.json").is_file():
            return []
        return [Missing(f"{folder}/config.json", "give the folder of a model")]
    if folder.is_absolute() or path.startswith((".", "~")):
        return [Missing(f"the model {path}", "give a folder that is there, or an id of the hub")]
    at = hub / f"models--{path.replace('/', '--')}"
    reference = at / "refs" / (revision or "main")
    commit = reference.read_text().strip() if reference.is_file() else revision or "main"
    if (at / "snapshots" / commit / "config.json").exists():
        return []
    version = f" --revision {revision}" if revision else ""
    return [Missing(f"the model {path} in {hub}", f"hf download {path}{version}")]


def _said_by(command: Sequence[str]) -> str | None:
    """None where it cannot be run or fails."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PROBE_DEADLINE_S, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
