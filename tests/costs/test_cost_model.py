"""Roofline, calibrated costs and proxies are one kind of thing, and each makes an engine."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from pointsman.costs.devices import device_named
from pointsman.costs.models import model_named
from pointsman.costs.proxies import ProxyCosts
from pointsman.costs.roofline import Instance
from pointsman.costs.stages import StageCosts
from pointsman.sim.batching import Engine
from tests.costs.test_calibrated import COSTS

SNIPPET = """
from pointsman.costs.calibrated import CostFile
from pointsman.costs.iteration import CostModel
from pointsman.costs.proxies import ProxyCosts
from pointsman.costs.roofline import Instance
from pointsman.costs.stages import StageCosts

def models(roofline: Instance, calibrated: CostFile, proxies: ProxyCosts) -> list[CostModel]:
    return [roofline, calibrated, proxies]

def no_model(stages: StageCosts) -> CostModel:
    return stages
"""


@pytest.mark.parametrize(
    "model",
    [
        Instance(model=model_named("llama-3.1-8b"), device=device_named("h200"), tp=2),
        COSTS,
        ProxyCosts(StageCosts()),
    ],
    ids=["roofline", "calibrated", "proxies"],
)
def test_each_makes_an_engine(model):
    assert Engine(model.iteration_costs(), kv_blocks=8).costs == model.iteration_costs()


def test_an_instance_states_the_whole_engine():
    instance = Instance(model=model_named("qwen3-8b"), device=device_named("l40s"))
    engine = Engine(
        instance.iteration_costs(),
        instance.kv_blocks(16),
        16,
        instance.max_num_seqs,
        instance.max_num_batched_tokens,
    )
    # 0.9 of 44.39 GiB, less 15.256 of weights, activations of 8,192 x (3 x 12,288 + 2 x 4,096) x 2
    # bytes, which are 0.6875, and 0.6 of other; a token has 147,456 bytes.
    cache_gib = engine.kv_blocks * 16 * 147_456 / 2**30
    assert cache_gib == pytest.approx(0.9 * 44.39 - 15.256 - 0.6875 - 0.6, abs=0.01)


def test_a_type_checker_takes_all_three_for_the_protocol_and_nothing_else(tmp_path):
    pytest.importorskip("mypy", reason="mypy is not installed (extra [check])")
    snippet = tmp_path / "snippet.py"
    snippet.write_text(SNIPPET)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports", "silent"]
    done = subprocess.run(
        [*command, "--cache-dir", str(tmp_path / "cache"), "--ignore-missing-imports", snippet],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    errors = re.findall(r"error: (.*)", done.stdout)
    assert len(errors) == 1, done.stdout
    assert 'got "StageCosts", expected "CostModel"' in errors[0]
