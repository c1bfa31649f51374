"""Run folders as they are read, and what is refused."""

from __future__ import annotations

import pytest

from pointsman.calibrate.recording import read_recording
from pointsman.core.errors import InputError
from tests.calibrate.recordings import META, request, run_folder

SIX = [request(i, i) for i in range(6)]
HEADER = "t,prompt_throughput,gen_throughput,running,waiting,kv_cache_pct\n"


def test_times_are_counted_from_the_first_to_come(tmp_path):
    late_first = [request(0, 3.0), request(1, 1.0, input_toks=7)]
    recording = read_recording(run_folder(tmp_path, late_first))
    assert recording.prompt_tokens.tolist() == [7, 100]
    assert recording.times.arrival_ms.tolist() == pytest.approx([0.0, 2000.0])
    assert recording.times.ttft_ms.tolist() == pytest.approx([500.0, 500.0])
    assert recording.times.e2e_ms.tolist() == pytest.approx([1000.0, 1000.0])
    assert recording.times.tpot_ms.tolist() == pytest.approx([500 / 9, 500 / 9])
    assert recording.gauges is None


def test_a_request_came_when_its_client_says_on_the_engines_clock(tmp_path):
    # Of the delays from the client's clock to being queued, the first one is the least: no wait.
    came = [request(0, 0.0, arrival_time=7.0), request(1, 1.0, arrival_time=7.75)]
    recording = read_recording(run_folder(tmp_path, came))
    assert recording.arrivals == "arrival_time"
    assert recording.times.arrival_ms.tolist() == pytest.approx([0.0, 750.0])
    assert recording.times.ttft_ms.tolist() == pytest.approx([500.0, 750.0])


@pytest.mark.parametrize("second", [7.5, None])
def test_a_client_whose_clock_does_not_fit_is_not_believed(tmp_path, second):
    # Queued 0.5 s after it came, when no prefill took more than 0.4 s; or not stated at all.
    came = [request(0, 0.0, arrival_time=7.0), request(1, 1.0, arrival_time=second)]
    recording = read_recording(run_folder(tmp_path, came))
    assert recording.arrivals == "queued_ts"
    assert recording.times.arrival_ms.tolist() == pytest.approx([0.0, 1000.0])


def test_the_first_requests_are_those_that_came_first(tmp_path):
    recording = read_recording(run_folder(tmp_path, SIX)).first(2)
    assert (len(recording), recording.times.arrival_ms.tolist()) == (2, [0.0, 1000.0])


@pytest.mark.parametrize(
    ("version", "told", "resolved", "expected"),
    [
        ("0.19.0", None, None, True),
        ("0.14.0", None, None, True),
        ("0.13.9", None, None, None),
        (None, None, None, None),
        ("0.19.0", False, None, False),
        ("0.19.0", True, False, False),
    ],
)
def test_scheduling_is_as_resolved_or_told_or_by_default(
    tmp_path, version, told, resolved, expected
):
    meta = {
        "vllm_version": version,
        "engine_kwargs": {**META["engine_kwargs"], "async_scheduling": told},
        "resolved_config": {"scheduler_config": {"async_scheduling": resolved}},
    }
    assert read_recording(run_folder(tmp_path, SIX, meta)).setup.async_scheduling is expected


@pytest.mark.parametrize(
    ("cores", "experts", "is_moe", "expected"),
    [(2, True, None, True), (2, None, True, True), (2, False, None, False), (1, True, True, False)],
)
def test_cores_step_together_where_they_share_experts(tmp_path, cores, experts, is_moe, expected):
    told = {"data_parallel_size": cores, "enable_expert_parallel": experts}
    meta = {
        "engine_kwargs": {**META["engine_kwargs"], **told},
        "resolved_config": {"parallel_config": {"is_moe_model": is_moe}},
    }
    assert read_recording(run_folder(tmp_path, SIX, meta)).setup.lockstep is expected


def test_one_kv_block_is_the_engines_own(tmp_path):
    meta = {**META, "kv_cache": {"num_gpu_blocks": 100, "block_size": 32}}
    setup = read_recording(run_folder(tmp_path, SIX, meta)).setup
    assert (setup.kv_blocks, setup.block_size, setup.engine_cores) == (99, 32, 1)


def test_a_limit_that_the_arguments_leave_open_is_taken_from_the_resolved_ones(tmp_path):
    resolved = {"scheduler_config": {"max_num_seqs": 77, "max_num_batched_tokens": 2048}}
    kwargs = {"max_num_seqs": None, "max_num_batched_tokens": 512}
    meta = {"engine_kwargs": kwargs, "resolved_config": resolved}
    setup = read_recording(run_folder(tmp_path, SIX, meta)).setup
    assert (setup.max_num_seqs, setup.max_num_batched_tokens) == (77, 512)


@pytest.mark.parametrize("name", ["max_num_seqs", "max_num_batched_tokens"])
def test_a_limit_that_is_nowhere_stated_is_asked_for(tmp_path, name):
    meta = {"engine_kwargs": {**META["engine_kwargs"], name: None}}
    with pytest.raises(InputError, match=rf"engine_kwargs\.{name} is not stated"):
        read_recording(run_folder(tmp_path, SIX, meta))


@pytest.mark.parametrize("name", ["meta.json", "requests.jsonl"])
def test_a_missing_file_is_named(tmp_path, name):
    run_folder(tmp_path, SIX)
    (tmp_path / name).unlink()
    with pytest.raises(InputError, match=rf"{name}: no such file"):
        read_recording(tmp_path)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(InputError, match="nowhere: no such folder"):
        read_recording(tmp_path / "nowhere")


def test_a_run_without_requests_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"requests\.jsonl: it has no requests"):
        read_recording(run_folder(tmp_path, []))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"scheduled_ts": 49.0}, "scheduled_ts is 49.0; expected a time not before queued_ts"),
        ({"first_token_ts": 50.05}, "first_token_ts is 50.05; expected a time not before sched"),
        ({"last_token_ts": 50.2}, "last_token_ts is 50.2; expected a time not before first_tok"),
        ({"output_toks": 0}, "output_toks is 0; expected an integer >= 1"),
        ({"input_toks": None}, "Expected `int`, got `null`"),
        ({"first_token_ts": "soon"}, "Expected `float`, got `str`"),
    ],
)
def test_a_wrong_request_is_named_by_its_line(tmp_path, changed, said):
    rows = [request(0, 1.0), request(1, 0.0, **changed)]
    with pytest.raises(InputError, match=r"requests\.jsonl line 2: .*" + said):
        read_recording(run_folder(tmp_path, rows))


def test_a_request_that_cannot_have_fitted_is_refused(tmp_path):
    meta = {**META, "kv_cache": {"num_gpu_blocks": 7, "block_size": 16}}
    with pytest.raises(InputError, match=r"a request of 109 tokens .* 6 usable KV blocks"):
        read_recording(run_folder(tmp_path, SIX, meta))


def test_the_gauges_count_generated_tokens(tmp_path):
    gauges = HEADER + "1.0,0,10,2,1,25\n3.0,0,5,1,0,50.5\n"
    read = read_recording(run_folder(tmp_path, SIX, gauges=gauges)).gauges
    assert read.generated_tokens.tolist() == [10.0, 20.0]
    assert read.kv_used_fraction.tolist() == [0.25, 0.505]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("t,running\n1,2\n", "gen_throughput is missing"),
        (HEADER + "1.0,0,1,1,1,1\n0.5,0,1,1,1,1\n", "line 3: t does not grow"),
        (HEADER + "1.0,0,1,many,1,1\n", "line 2: running is 'many'; expected a number >= 0"),
        (HEADER + "1.0,0,1\n", "line 2: running is None; expected a number >= 0"),
    ],
)
def test_wrong_gauges_are_refused(tmp_path, text, said):
    with pytest.raises(InputError, match=r"timeseries\.csv.*" + said):
        read_recording(run_folder(tmp_path, SIX, gauges=text))
