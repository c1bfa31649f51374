"""Files of small experiments, and ``pointsman bench`` over them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pointsman.cli.main import main
from tests.bench.engines.vllm_stand_in import vllm_at

PROMPT, OUTPUT = 20, 4  # tokens of each request
MODEL = "m"


def experiment(
    groups: Sequence[str],
    engine: str = 'name = "external"',
    requests: int = 12,
    head: str = "",
    hardware: str = 'device = "cpu"',
    workload: str = "seed = 3",
    rate_rps: float = 200.0,
    model: str = f'id = "{MODEL}"',
) -> str:
    """The text of a file. ``groups``: what stands in each of their tables."""
    tables = "".join(f"[[groups]]\n{group}\n" for group in groups)
    return (
        f'name = "small"\n{head}\n[model]\n{model}\n[engine]\n{engine}\n'
        f'[hardware]\n{hardware}\n[workload]\nid = "drawn"\n{workload}\n'
        f"[workload.generate]\nrequests = {requests}\nrate_rps = {rate_rps}\n"
        f'prompt_tokens = "{PROMPT}"\noutput_tokens = "{OUTPUT}"\n{tables}'
    )


def written(folder: Path, *words, **more) -> Path:
    """That text as a file of this folder."""
    file = folder / "small.toml"
    file.write_text(experiment(*words, **more))
    return file


def one(*engines, name: str = "g0") -> str:
    """A group of one replica that runs already."""
    return f'name = "{name}"\nreplicas = 1\n{urls_of(engines[:1])}'


def several(*engines, policies: Sequence[str], name: str = "g1_several") -> str:
    """A group of as many as there are."""
    chosen = json.dumps(list(policies))
    count = len(engines)
    return f'name = "{name}"\nreplicas = {count}\npolicies = {chosen}\n{urls_of(engines)}'


def apart(*engines, prefills: int, handoff: str = "shared_storage", name: str = "g2_apart") -> str:
    """A group of which the first ones prefill."""
    return (
        f'name = "{name}"\nmode = "pd_disaggregated"\nprefills = {prefills}\n'
        f'decodes = {len(engines) - prefills}\npolicies = ["round_robin"]\n'
        f'handoff = "{handoff}"\n{urls_of(engines)}'
    )


def urls_of(engines) -> str:
    return f"urls = {json.dumps([each.url for each in engines])}"


def vllm_here(folder: Path, flags: Sequence[str] = ()) -> dict[str, str]:
    """The tables ``engine`` and ``model`` of the stand-in for vLLM as a process of ours."""
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text('{"torch_dtype": "bfloat16"}')
    command = vllm_at(folder / "vllm")
    return {
        "engine": f'name = "vllm"\ncommand = "{command}"\nflags = {json.dumps(list(flags))}',
        "model": f'id = "{model}"\nserved_name = "{MODEL}"',
    }


def bench(file: Path, *words) -> int:
    """In this process; the exit code. Results are in ``results`` beside the file."""
    flags = map(str, words)
    return main(["bench", str(file), "--output", str(file.parent / "results"), *flags])


def command(file: Path, *words) -> list[str]:
    """The same as users run it."""
    own = [sys.executable, "-m", "pointsman", "bench", str(file)]
    return [*own, "--output", str(file.parent / "results"), *map(str, words)]


def environment() -> dict[str, str]:
    """In which a process finds what we find."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def group_in(folder: Path, name: str) -> dict:
    """The evidence of a group."""
    return json.loads((folder / f"{name}.json").read_text())


def rows_of(folder: Path, repeat: dict) -> list[dict]:
    """The side file of a repeat."""
    text = (folder / repeat["rows"]["file"]).read_text()
    return [json.loads(line) for line in text.splitlines()]
