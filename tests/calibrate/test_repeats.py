"""The error of a calibration beside what the engine itself differs by from run to run."""

from __future__ import annotations

import csv
import io
import json

import numpy as np
import pytest

from pointsman.calibrate.agreement import Figure
from pointsman.calibrate.calibration import calibrate
from pointsman.calibrate.recording import read_recording
from pointsman.calibrate.simulated import twin_of
from pointsman.cli.main import main
from pointsman.core.errors import InputError
from pointsman.costs.iteration import IterationCosts
from tests.calibrate.recordings import META, request, requests_of, run_folder
from tests.compiling import without_compiling

ROWS = [request(i, 2.0 * i) for i in range(6)]
COSTS = IterationCosts(9.0, 0.05, 0.06, 1e-4, 5e-7)


@pytest.fixture
def first(tmp_path):
    return written(tmp_path / "first", ROWS)


def written(folder, rows, meta=None):
    folder.mkdir()
    return run_folder(folder, rows, meta)


def later(rows, factor: float):
    """The same requests, whose first tokens come that much later, and all else with them."""
    late_s = 0.5 * (factor - 1.0)
    names = ("first_token_ts", "last_token_ts")
    return [{**row, **{name: row[name] + late_s for name in names}} for row in rows]


def test_noise_is_the_largest_difference_of_two_runs_in_parts_of_the_first():
    """100, 110 and 95: 15 apart."""
    figure = Figure(recorded=100.0, simulated=115.0, repeats=(110.0, 95.0))
    assert figure.noise == pytest.approx(0.15)
    assert figure.is_within_noise
    assert Figure(100.0, 80.0, (110.0, 95.0)).is_within_noise is False
    assert Figure(100.0, 100.0).noise is Figure(100.0, 100.0).is_within_noise is None


def test_an_error_smaller_than_the_noise_between_repeats_is_said_to_be_within_it(tmp_path, first):
    """First tokens after 500 ms, and after 550 and 450 in the repeats: 20 %. The fit is nearer."""
    folders = [written(tmp_path / f"x{k}", later(ROWS, k)) for k in (1.1, 0.9)]
    repeats = [read_recording(folder) for folder in folders]
    result = calibrate(read_recording(first), repeats=repeats)
    for figure in result.overall["ttft_ms"].values():
        assert figure.noise == pytest.approx(0.2)
        assert figure.is_within_noise


def test_where_repeats_do_not_differ_every_error_is_beyond_the_noise():
    exact = Figure(recorded=200.0, simulated=201.0, repeats=(200.0,))
    assert exact.noise == 0.0
    assert exact.is_within_noise is False


def test_repeats_do_not_change_the_costs(tmp_path, first):
    repeat = read_recording(written(tmp_path / "again", later(ROWS, 1.5)))
    recording = read_recording(first)
    assert calibrate(recording, repeats=[repeat]).file == calibrate(recording).file


def test_two_runs_of_the_simulator_are_held_against_each_other_request_by_request(tmp_path):
    """The second run is 10 % slower throughout, its requests stand in the file in reverse."""
    plan = read_recording(written(tmp_path / "plan", ROWS))
    slower = IterationCosts(9.9, 0.055, 0.066, 1.1e-4, 5.5e-7)
    prompts = plan.prompt_tokens.tolist()
    lines = [requests_of(prompts, twin_of(plan, 0.0, True).run(costs)) for costs in (COSTS, slower)]
    one = read_recording(written(tmp_path / "one", lines[0]))
    two = read_recording(written(tmp_path / "two", lines[1][::-1]))
    result = calibrate(one, 5, [two])
    for sides in (result.overall, result.held_out):
        for figures in sides.values():
            noises = [figure.noise for figure in figures.values()]
            np.testing.assert_allclose(noises, 0.1, atol=1e-6)


def test_the_command_prints_the_noise_beside_each_error(tmp_path, first, capsys):
    folder = written(tmp_path / "again", later(ROWS, 1.2))
    command = ["calibrate", str(first), "--repeat", str(folder)]
    assert main([*command, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["repeats"] == [str(folder)]
    assert document["noise"]["ttft_ms"]["mean"] == pytest.approx(0.2)
    assert document["within_noise"]["ttft_ms"]["mean"] is True
    assert document["noise_not_fitted"] is None
    assert main(command) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "figure recorded simulated error noise error is" in out
    assert "within it" in out
    assert "Noise: the most by which 2 recorded runs of the same requests differ." in out
    assert main([*command, "--format", "csv"]) == 0
    row = next(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert float(row["noise"]) == pytest.approx(0.2)


def test_without_repeats_nothing_is_said_of_noise(first, capsys):
    assert main(["calibrate", str(first)]) == 0
    assert "oise" not in capsys.readouterr().out
    assert main(["calibrate", str(first), "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["noise"] is None
    assert document["repeats"] == []


OTHER_ENGINE = {**META, "engine_kwargs": {**META["engine_kwargs"], "max_num_seqs": 9}}


@pytest.mark.parametrize(
    ("rows", "meta", "message"),
    [
        (ROWS[:5], None, "the number of requests is 5; expected 6, as in "),
        ([{**ROWS[0], "input_toks": 99}, *ROWS[1:]], None, "one has prompt_tokens 99 where 100"),
        ([{**ROWS[0], "output_toks": 11}, *ROWS[1:]], None, "one has output_tokens 11 where 10"),
        ([request(i, 4.0 * i) for i in range(6)], None, "request 6 in order of arrival came"),
        (ROWS, OTHER_ENGINE, "max_num_seqs is 9; expected 8, as in the run that it repeats"),
        (ROWS, {**META, "vllm_version": "0.20.0"}, "version is '0.20.0'; expected '0.19.0'"),
    ],
)
def test_other_requests_or_another_setup_are_one_clear_error(
    tmp_path, first, capsys, rows, meta, message
):
    folder = written(tmp_path / "again", rows, meta)
    assert main(["calibrate", str(first), "--repeat", str(folder)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert message in captured.err
    said = without_compiling(captured.err)
    assert said.startswith(f"pointsman: {folder}: ")
    assert said.count("\n") == 1


def test_a_run_is_no_repeat_of_itself(first):
    recording = read_recording(first)
    with pytest.raises(InputError, match="given twice, and a run is no repeat of itself"):
        calibrate(recording, repeats=[recording])
