"""Calibrated costs: read back as they were written, and compared with what is asked of them."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pointsman.calibrate.cost_file import write_cost_file
from pointsman.core.errors import InputError
from pointsman.costs.calibrated import (
    SCHEMA,
    CostFile,
    EngineFacts,
    Residuals,
    RunFigures,
    ValidityRange,
    figures_of,
    outside_range,
    read_calibrated,
)
from pointsman.costs.iteration import IterationCosts
from pointsman.workload.workload import workload_of_columns

ENGINE = EngineFacts(
    model="vllm-v1",
    version="0.19.0",
    served_model="meta-llama/Llama-3.1-8B",
    tensor_parallel=1,
    engine_cores=1,
    max_num_seqs=128,
    max_num_batched_tokens=2048,
    kv_blocks=None,
    block_size=16,
    async_scheduling=True,
)
COSTS = CostFile(
    schema=SCHEMA,
    costs=IterationCosts(12.0, 0.04, 0.06, 6e-5, 6e-7),
    shared_blocks=0.7,
    engine=ENGINE,
    fitted_requests=300,
    valid_up_to=ValidityRange(4000, 1000, 128, 150_000, 10.5),
    residuals=Residuals(12.5, 0.02),
)
DOCUMENT: dict[str, Any] = msgspec.to_builtins(COSTS)


def written(path: Path, document: Any) -> Path:
    path.write_text(json.dumps(document))
    return path


def test_what_calibrate_writes_is_read_back(tmp_path):
    file = tmp_path / "costs.json"
    write_cost_file(file, COSTS)
    assert read_calibrated(file) == COSTS
    assert read_calibrated(file).iteration_costs() == COSTS.costs


@pytest.mark.parametrize(
    ("group", "key", "value", "message"),
    [
        (None, "schema", "pointsman.costs/2", "schema is 'pointsman.costs/2'; expected"),
        (None, "fitted_requests", 0, "fitted_requests is 0; expected an integer >= 1"),
        (None, "shared_blocks", -1, "shared_blocks is -1; expected a finite number >= 0"),
        (None, "cost", {}, "field 'cost' is unknown; expected one of"),
        (None, "engine", [], "engine is []; expected a group of fields"),
        ("costs", "per_iteration_ms", 0, "costs: per_iteration_ms is 0; expected a finite"),
        ("costs", "per_decode_ms", None, "costs: per_decode_ms is None; expected a finite"),
        ("costs", "per_decode", 1, "did you mean per_decode_ms?"),
        ("engine", "kv_blocks", 0, "engine: kv_blocks is 0; expected an integer >= 1, or null"),
        ("engine", "model", "", "engine: model is ''; expected a text"),
        ("engine", "async_scheduling", 1, "async_scheduling is 1; expected true or false"),
        ("valid_up_to", "batch", "8", "valid_up_to: batch is '8'; expected an integer >= 0"),
        ("residuals", "loss", True, "residuals: loss is True; expected a finite number"),
    ],
)
def test_a_wrong_key_is_one_clear_error(tmp_path, group, key, value, message):
    document = copy.deepcopy(DOCUMENT)
    (document if group is None else document[group])[key] = value
    file = written(tmp_path / "costs.json", document)
    with pytest.raises(InputError) as caught:
        read_calibrated(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("group", [None, "costs", "engine", "valid_up_to", "residuals"])
def test_each_missing_key_is_named(tmp_path, group):
    keys = DOCUMENT if group is None else DOCUMENT[group]
    for key in keys:
        document = copy.deepcopy(DOCUMENT)
        del (document if group is None else document[group])[key]
        with pytest.raises(InputError, match=f"{key} is missing; expected "):
            read_calibrated(written(tmp_path / "costs.json", document))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON: .* expected a file that pointsman calibrate --output wrote"),
        ("[]", "expected a group with the fields schema,"),
    ],
)
def test_another_file_is_refused(tmp_path, text, message):
    file = tmp_path / "costs.json"
    file.write_text(text)
    with pytest.raises(InputError, match=message):
        read_calibrated(file)


def test_inside_the_range_there_is_nothing_to_say():
    most = RunFigures(
        prompt_tokens=4000,
        output_tokens=1000,
        batch=128,
        kv_tokens=150_000,
        rate_rps=10.5,
        engine_model="vllm-v1",
        engine_version="0.19.0",
        served_model="meta-llama/Llama-3.1-8B",
    )
    assert outside_range(COSTS, most) == []
    assert outside_range(COSTS, RunFigures()) == []


@pytest.mark.parametrize(
    ("figures", "sentence"),
    [
        (
            RunFigures(prompt_tokens=9000),
            "prompt_tokens is 9,000 and the costs were fitted up to 4,000 tokens",
        ),
        (
            RunFigures(output_tokens=1001),
            "output_tokens is 1,001 and the costs were fitted up to 1,000 tokens",
        ),
        (
            RunFigures(batch=256),
            "batch is 256 and the costs were fitted up to 128 requests at once",
        ),
        (RunFigures(kv_tokens=150_001), "kv_tokens is 150,001 and the costs were fitted up to"),
        (
            RunFigures(rate_rps=21.0),
            "rate_rps is 21 and the costs were fitted up to 10.5 requests/s",
        ),
        (
            RunFigures(engine_model="vllm-v2"),
            "engine model is vllm-v2 and the costs were fitted to vllm-v1",
        ),
        (
            RunFigures(engine_version="0.20.0"),
            "engine version is 0.20.0 and the costs were fitted to 0.19.0",
        ),
        (RunFigures(served_model="Qwen/Qwen3-8B"), "served model is Qwen/Qwen3-8B and the costs"),
    ],
)
def test_each_figure_beyond_the_range_is_a_sentence(figures, sentence):
    (said,) = outside_range(COSTS, figures)
    assert said.startswith(sentence)


def test_an_engine_that_was_not_recorded_is_another_one():
    costs = msgspec.structs.replace(COSTS, engine=msgspec.structs.replace(ENGINE, version=None))
    assert outside_range(costs, RunFigures(engine_version="0.19.0")) == [
        "engine version is 0.19.0 and the costs were fitted to one not recorded"
    ]


def test_a_workload_is_shared_by_its_replicas():
    workload = workload_of_columns(
        [0.0, 100.0, 500.0], prompt_tokens=[10, 30, 20], output_tokens=[5, 1, 9]
    )
    # Two gaps in half a second are 4 a second, 2 for each of two.
    assert figures_of(workload, replicas=2) == RunFigures(
        prompt_tokens=30, output_tokens=9, rate_rps=2.0
    )
