"""A stand-in for ``vllm serve`` 0.32: the flags and the HTTP that Pointsman uses, no model.

What it answers to a load stands in ``answering.py``.

Shapes: from a server of the CPU build, run. Flags that it does not know end it, as vLLM does.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.bench.engines.answering import Answering
from tests.bench.engines.http_stand_in import HERE, Loading, program, python_with, serving

PAGE = HERE / "vllm_0_32_cpu_metrics.txt"


def vllm_at(folder: Path, packages=(("vllm", "0.32.0+cpu"),)) -> str:
    """The command of an environment with these packages."""
    python = python_with(folder, dict(packages))
    return str(program(folder / "bin" / "vllm", f"{python} -m tests.bench.engines.vllm_stand_in"))


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("verb", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--kv-transfer-config")
    for flag in ("served-model-name", "host", "dtype", "revision", "tokenizer"):
        parser.add_argument(f"--{flag}")
    for flag in ("port", "max-model-len", "max-num-seqs", "max-num-batched-tokens", "block-size"):
        parser.add_argument(f"--{flag}", type=int)
    for flag in ("tensor-parallel-size", "pipeline-parallel-size"):
        parser.add_argument(f"--{flag}", type=int, default=1)
    for flag in ("enable-prefix-caching", "enable-prompt-tokens-details", "enforce-eager"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--enable-request-id-headers", action="store_true")
    parser.add_argument("--no-enable-chunked-prefill", action="store_true")
    parser.add_argument("--ms-a-token", type=float, default=0.0, help="of the stand-in alone")
    asked = parser.parse_args()
    print("stand-in for vLLM:", sys.argv[1:], flush=True)
    runs = {"requests": 0}
    answers = Answering(asked.ms_a_token)
    routes = {
        "GET /health": Loading(3),
        "GET /version": lambda _: (200, {"version": "0.32.0"}),
        "GET /v1/models": lambda _: (200, {"data": [{"id": asked.served_model_name}]}),
        "GET /metrics": lambda _: (200, PAGE.read_text() + answers.page()),
        "POST /busy": lambda body: (200, runs.update(body)),
        **answers.load_routes(),
    }
    if os.environ.get("VLLM_SERVER_DEV_MODE") == "1":
        routes["POST /reset_prefix_cache"] = lambda _: (200, {"success": not runs["requests"]})
    serving(asked.host, asked.port, routes).serve_forever()


if __name__ == "__main__":
    main()
