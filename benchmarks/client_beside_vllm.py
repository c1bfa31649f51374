"""Our load client beside ``vllm bench serve``, in turns on one vLLM server on the CPU.

    python benchmarks/client_beside_vllm.py VLLM MODEL [--rate RPS] [--requests N] [--rounds N]

VLLM is the command of a CPU build, MODEL a folder (docs/testing.md says how both are made). The
server has the first core, whichever client runs the others. Both send requests of 512 shared and
128 own prompt tokens for 32 output tokens at random instants of one rate, each run with prompts of
its own, the order turned round each time. TTFT counts from the send in both.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pointsman.bench.client.figures import figures
from pointsman.bench.client.load import Load
from pointsman.bench.client.measure import measure
from pointsman.bench.client.target import Target
from pointsman.bench.engines.protocol import Instance, Model
from pointsman.bench.engines.running import started
from pointsman.bench.engines.vllm import Vllm
from pointsman.workload.arrivals import PoissonArrivals
from pointsman.workload.distributions import Constant
from pointsman.workload.generate import SystemPrompts, Traffic, generate

SHARED, OWN, ANSWER = 512, 128, 32
FLAGS = ("--num-gpu-blocks-override", "512")
OFFLINE = dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "VLLM_NO_USAGE_STATS"), "1")
FIGURES = ("ttft", "tpot", "e2e", "e2e p99")

Figures = dict[str, float]


def theirs(asked: argparse.Namespace, url: str, seed: int, folder: Path) -> Figures:
    """A run of ``vllm bench serve``; ms."""
    result = folder / f"theirs-{seed}.json"
    prefix = "--prefix-repetition-{}-len={}"
    command = [
        *(asked.vllm, "bench", "serve", "--backend", "openai", "--base-url", url),
        *("--model", "tiny", "--tokenizer", asked.model, "--seed", str(seed)),
        *("--dataset-name", "prefix_repetition", "--prefix-repetition-num-prefixes", "4"),
        *(prefix.format("prefix", SHARED), prefix.format("suffix", OWN)),
        *(prefix.format("output", ANSWER), "--num-prompts", str(asked.requests)),
        *("--request-rate", str(asked.rate), "--ignore-eos", "--disable-tqdm", "--temperature=0"),
        *("--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "99"),
        *("--save-result", "--result-filename", str(result)),
    ]
    subprocess.run(command, env=os.environ | OFFLINE, check=True, capture_output=True)
    told: dict[str, Any] = json.loads(result.read_text())
    means = {name: told[f"mean_{key}_ms"] for name, key in (("ttft", "ttft"), ("tpot", "tpot"))}
    return {**means, "e2e": told["mean_e2el_ms"], "e2e p99": told["p99_e2el_ms"]}


def ours(asked: argparse.Namespace, url: str, seed: int) -> tuple[Figures, tuple[str, ...]]:
    """The same by our client, and why it calls the run invalid, if it does."""
    traffic = Traffic(
        requests=asked.requests,
        arrivals=PoissonArrivals(asked.rate),
        prompt_tokens=Constant(OWN),
        output_tokens=Constant(ANSWER),
        system_prompts=SystemPrompts(Constant(SHARED), 4),
    )
    load = Load(generate(traffic, seed), name=f"ours-{seed}", seed=seed)
    seen = measure(Target(url, "tiny", "vllm"), load)
    found = figures(seen).metrics
    answers = [row.last_token_ms - row.sent_ms for row in seen.rows if row.last_token_ms]
    return {
        "ttft": found.ttft_from_send_ms.mean or np.nan,
        "tpot": found.tpot_ms.mean or np.nan,
        "e2e": float(np.mean(answers)),
        "e2e p99": float(np.quantile(answers, 0.99)),
    }, seen.disturbance.bottleneck


def main() -> None:
    """Print both clients' figures of every round, and their medians."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("vllm")
    parser.add_argument("model")
    parser.add_argument("--rate", type=float, default=4.0)
    parser.add_argument("--requests", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=4)
    asked = parser.parse_args()
    instance = Instance(
        Model(asked.model, "tiny", dtype="bfloat16"),
        context_tokens=4096,
        max_running=8,
        cores=(0,),
        flags=FLAGS,
        niceness=10,
    )
    found: dict[str, list[Figures]] = {"vllm bench serve": [], "our client": []}
    with tempfile.TemporaryDirectory() as folder:
        engine = Vllm(asked.vllm, device="cpu")
        with started(engine, [instance], Path(folder)) as [server]:
            ours(asked, server.url, 999)  # nobody meets a cold server
            for turn in range(asked.rounds):
                for who in list(found)[:: 1 if turn % 2 == 0 else -1]:
                    engine.reset_cache(server)
                    if who == "our client":
                        figures_of, invalid = ours(asked, server.url, turn)
                        print("".join(f"  invalid: {each}\n" for each in invalid), end="")
                    else:
                        figures_of = theirs(asked, server.url, turn, Path(folder))
                    found[who].append(figures_of)
                    print(f"{who}: " + ", ".join(f"{k} {v:.1f}" for k, v in figures_of.items()))
    for who, runs in found.items():
        middle = {name: median(run[name] for run in runs) for name in FIGURES}
        print(f"median of {who}: " + ", ".join(f"{k} {v:.1f}" for k, v in middle.items()))


if __name__ == "__main__":
    main()
