"""Costs from recorded runs: one that the simulator made, and two of real engines."""

from __future__ import annotations

import json

import numpy as np
import pytest

from pointsman.calibrate.calibration import calibrate
from pointsman.calibrate.recording import read_recording
from pointsman.calibrate.simulated import twin_of
from pointsman.cli.main import main
from pointsman.core.errors import InputError
from pointsman.costs.iteration import IterationCosts
from tests.calibrate.recordings import META, request, requests_of, run_folder
from tests.compiling import without_compiling

KNOWN = IterationCosts(9.0, 0.05, 0.06, 1e-4, 5e-7)
COUNT = 60

# What holds of recorded runs, fitted to their first 100 of 300 requests (docs/calibration.md).
WITHIN = {
    "ttft_ms": {"mean": 0.03, "p50": 0.05, "p95": 0.05},
    "tpot_ms": {"mean": 0.03, "p50": 0.03, "p95": 0.03},
    "e2e_ms": {"mean": 0.03, "p50": 0.03, "p95": 0.03},
}
RECORDED = ("rtxpro6000-llama31-8b", "rtx4090-llama31-8b")


def synthetic(folder, cores: int = 1, **arguments):
    """A run of the simulator with known costs, as if it had been recorded."""
    draws = np.random.default_rng(5)
    prompt = draws.integers(20, 900, COUNT).tolist()
    rows = [
        request(i, 0.05 * i, input_toks=prompt[i], output_toks=output, last_token_ts=99.0)
        for i, output in enumerate(draws.integers(2, 120, COUNT).tolist())
    ]
    kwargs = {**META["engine_kwargs"], "data_parallel_size": cores, **arguments}
    meta = {**META, "engine_kwargs": kwargs}
    plan = read_recording(run_folder(folder, rows, meta))
    times = twin_of(plan, 0.0, plan.setup.async_scheduling).run(KNOWN)
    return run_folder(folder, requests_of(prompt, times), meta)


def errors(figures) -> list[float]:
    return [abs(figure.error) for sides in figures.values() for figure in sides.values()]


@pytest.mark.parametrize(
    ("cores", "arguments"),
    [
        (1, {}),
        (1, {"async_scheduling": False}),
        (2, {"async_scheduling": False}),
    ],
)
def test_a_run_of_the_simulator_is_found_again(tmp_path, cores, arguments):
    result = calibrate(read_recording(synthetic(tmp_path, cores, **arguments)), COUNT // 2)
    assert max(errors(result.overall) + errors(result.held_out)) < 0.03
    assert result.file.engine.async_scheduling is arguments.get("async_scheduling", True)


def test_a_run_on_cores_that_step_together_is_found_again(tmp_path):
    recording = read_recording(synthetic(tmp_path, 2, enable_expert_parallel=True))
    result = calibrate(recording, 3 * COUNT // 4)
    assert max(errors(result.overall) + errors(result.held_out)) < 0.03


def test_scheduling_that_is_not_known_is_found(tmp_path):
    folder = synthetic(tmp_path, async_scheduling=True)
    meta = json.loads((folder / "meta.json").read_text())
    del meta["vllm_version"], meta["engine_kwargs"]["async_scheduling"]
    (folder / "meta.json").write_text(json.dumps(meta))
    assert calibrate(read_recording(folder), 20).file.engine.async_scheduling


@pytest.fixture(scope="module", params=RECORDED)
def fitted(request, shared):
    """A recorded run of a real engine, fitted to its first 100 requests."""
    path = shared(f"realruns/{request.param}/requests.jsonl").parent
    return calibrate(read_recording(path), 100)


def test_a_recorded_engine_is_met_from_a_third_of_its_requests(fitted):
    for quantity, figures in WITHIN.items():
        for name, most in figures.items():
            assert abs(fitted.overall[quantity][name].error) <= most, (quantity, name)


def test_running_and_waiting_stay_with_the_recorded_gauges_in_overload(fitted):
    """Both runs fill the engine; parts are of the most that was in it at once."""
    assert fitted.over_time.waiting.recorded.max() > 90
    for course in (fitted.over_time.running, fitted.over_time.waiting):
        assert course.mean_difference <= 0.02
        assert course.worst_difference <= 0.08


def test_the_engine_of_a_recorded_run_schedules_as_it_was_set(fitted):
    assert fitted.file.engine.async_scheduling
    assert fitted.recording.arrivals == "arrival_time"


def test_times_beyond_the_fitted_part_do_not_change_the_costs(tmp_path):
    folder = synthetic(tmp_path)
    before = calibrate(read_recording(folder), 20).file.costs
    rows = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    for row in rows[20:]:
        row["last_token_ts"] += 1000.0
    after = calibrate(read_recording(run_folder(folder, rows)), 20).file.costs
    assert after == before


@pytest.mark.parametrize("fit_first", [4, 7, -1])
def test_a_part_that_is_too_small_or_too_large_is_refused(tmp_path, fit_first):
    folder = run_folder(tmp_path, [request(i, i) for i in range(6)])
    with pytest.raises(InputError, match=rf"fit-first is {fit_first}; expected .* in 5\.\.6"):
        calibrate(read_recording(folder), fit_first)


def test_a_run_that_is_too_short_is_refused(tmp_path):
    folder = run_folder(tmp_path, [request(i, i) for i in range(4)])
    with pytest.raises(InputError, match="the number of requests is 4; expected at least 5"):
        calibrate(read_recording(folder))


def test_the_command_prints_errors_and_writes_the_costs(tmp_path, capsys):
    rows = [request(i, 2.0 * i, output_toks=1 + 9 * (i > 0)) for i in range(6)]
    folder, target = run_folder(tmp_path, rows), tmp_path / "costs.json"
    command = ["calibrate", str(folder), "--fit-first", "5", "--output", str(target)]
    assert main([*command, "--format", "json"]) == 0
    captured = capsys.readouterr()
    document, written = json.loads(captured.out), json.loads(target.read_text())
    assert without_compiling(captured.err) == f"wrote {target}\n"
    assert document["schema"] == "pointsman.calibration/1"
    assert (document["n"], document["fitted"]) == (6, 5)
    assert set(document["errors"]) == {"ttft_ms", "tpot_ms", "e2e_ms"}
    assert set(document["errors_not_fitted"]["e2e_ms"]) == {"mean", "p50", "p95"}
    assert written["costs"] == document["costs"]
    assert written["valid_up_to"] == {
        "prompt_tokens": 100,
        "output_tokens": 10,
        "batch": 1,
        "kv_tokens": 110,
        "rate_rps": 0.5,
    }


@pytest.mark.parametrize(("form", "said"), [("table", "p95 e2e_ms"), ("csv", "all,e2e_ms,p95,")])
def test_the_command_prints_tables(tmp_path, capsys, form, said):
    folder = run_folder(tmp_path, [request(i, 2.0 * i) for i in range(6)])
    assert main(["calibrate", str(folder), "--format", form]) == 0
    out = capsys.readouterr().out
    assert said in out
    assert "not_fitted" not in out


def test_a_wrong_folder_is_an_input_error(tmp_path, capsys):
    assert main(["calibrate", str(tmp_path / "none")]) == 2
    assert "no such folder" in capsys.readouterr().err
