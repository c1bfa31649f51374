"""vLLM's command lines, as vLLM 0.32 on CPUs was run, and its HTTP on a stand-in."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pointsman.bench.engines.external import External
from pointsman.bench.engines.http_calls import call
from pointsman.bench.engines.machine import Machine
from pointsman.bench.engines.protocol import CacheState, HandOff, Instance, Model, Ports
from pointsman.bench.engines.running import started
from pointsman.bench.engines.vllm import Vllm
from pointsman.bench.missing import Missing
from pointsman.core.errors import InputError, MachineError
from pointsman.router.engine.names import ENGINES
from pointsman.router.engine.reading import EngineReading, reading_of
from tests.bench.engines.vllm_stand_in import PAGE, vllm_at

QWEN = Model("Qwen/Qwen2.5-0.5B-Instruct", "qwen", revision="7ae5576", dtype="bfloat16")
PORTS = Ports(18101, 25600)
OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK")
ALWAYS = dict.fromkeys((*OFFLINE, "VLLM_SERVER_DEV_MODE"), "1")


def launched(engine: Vllm, **settings):
    return engine.launch(Instance(QWEN, **settings), PORTS)


def value_of(command, flag):
    return command[command.index(flag) + 1]


def test_the_command_line_on_gpus_has_ranks_lengths_and_what_answers_tell():
    launch = launched(Vllm(), tp=2, pp=2, context_tokens=4096, max_running=64, gpus=("4", "5"))
    assert launch.url == "http://127.0.0.1:18101"
    assert " ".join(launch.command) == (
        "vllm serve Qwen/Qwen2.5-0.5B-Instruct --served-model-name qwen --host 127.0.0.1"
        " --port 18101 --tensor-parallel-size 2 --pipeline-parallel-size 2 --revision 7ae5576"
        " --dtype bfloat16 --max-model-len 4096 --max-num-seqs 64 --enable-prefix-caching"
        " --enable-prompt-tokens-details --enable-request-id-headers"
    )
    assert dict(launch.environment) == {**ALWAYS, "CUDA_VISIBLE_DEVICES": "4,5"}


def test_on_cpus_blocks_are_of_32_tokens_and_each_rank_has_its_cores():
    launch = launched(Vllm(device="cpu", cache_gib=2), tp=2, cores=(0, 1, 4, 5))
    assert launch.command[-3:] == ("--enforce-eager", "--block-size", "32")
    assert dict(launch.environment) == {
        **ALWAYS,
        "VLLM_CPU_KVCACHE_SPACE": "2",
        "VLLM_CPU_OMP_THREADS_BIND": "0,1|4,5",
        "OMP_NUM_THREADS": "2",
    }


def test_flags_of_ones_own_come_last_so_that_they_win():
    launch = launched(Vllm(device="cpu"), flags=("--block-size", "64"))
    assert launch.command[-4:] == ("--block-size", "32", "--block-size", "64")


@pytest.mark.parametrize(("role", "its"), [("prefill", "producer"), ("decode", "consumer")])
def test_by_nixl_a_role_is_one_of_the_connector_and_it_meets_at_its_own_port(role, its):
    gpu = launched(Vllm(), role=role, handoff=HandOff("nixl"))
    cpu = launched(Vllm(device="cpu"), role=role, handoff=HandOff("nixl"))
    wanted = {"kv_connector": "NixlConnector", "kv_role": f"kv_{its}"}
    assert json.loads(value_of(gpu.command, "--kv-transfer-config")) == wanted
    assert json.loads(value_of(cpu.command, "--kv-transfer-config")) == {
        **wanted,
        "kv_buffer_device": "cpu",
    }
    meeting = {
        "VLLM_NIXL_SIDE_CHANNEL_HOST": "127.0.0.1",
        "VLLM_NIXL_SIDE_CHANNEL_PORT": "25600",
    }
    assert dict(gpu.environment) == ALWAYS | meeting
    assert dict(cpu.environment) == (
        ALWAYS
        | meeting
        | {"UCX_TLS": "tcp,self,sm", "UCX_NET_DEVICES": "lo", "VLLM_CPU_KVCACHE_SPACE": "1"}
    )


@pytest.mark.parametrize(("context", "batch"), [(1024, "2048"), (4096, "4096")])
def test_over_a_folder_no_prompt_is_cut_and_a_batch_holds_the_longest(context, batch):
    handoff = HandOff("shared_storage", Path("/caches"))
    command = launched(Vllm(), role="decode", handoff=handoff, context_tokens=context).command
    assert json.loads(value_of(command, "--kv-transfer-config")) == {
        "kv_connector": "ExampleConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {"shared_storage_path": "/caches"},
    }
    assert command[-3:] == ("--no-enable-chunked-prefill", "--max-num-batched-tokens", batch)


def test_a_hand_off_over_files_without_a_folder_is_refused():
    with pytest.raises(InputError, match="engine vllm: the hand-off's folder is missing"):
        launched(Vllm(), role="decode", handoff=HandOff("shared_storage"))


def test_a_hand_off_of_another_engine_is_refused():
    with pytest.raises(InputError, match="hand-off 'llamacpp' is unknown; expected one of nixl"):
        launched(Vllm(), role="decode", handoff=HandOff("llamacpp", Path("/caches")))


# What is missing.


def test_all_that_is_missing_is_said_at_once_with_its_fix(tmp_path):
    engine = Vllm(command=str(tmp_path / "vllm"))
    instances = [Instance(QWEN, tp=2), Instance(QWEN, tp=2)]
    assert engine.missing(instances, Machine(("0", "1"), tmp_path)) == [
        Missing(
            f"the command {tmp_path}/vllm",
            "pip install vllm, and give its command where it is not on PATH",
        ),
        Missing(
            f"the model Qwen/Qwen2.5-0.5B-Instruct in {tmp_path}",
            "hf download Qwen/Qwen2.5-0.5B-Instruct --revision 7ae5576",
        ),
    ]
    assert engine.version() is None


def test_where_all_is_there_nothing_is_missing(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    engine = Vllm(vllm_at(tmp_path))
    instances = [Instance(Model(str(model), "tiny"), tp=2)]
    assert engine.missing(instances, Machine(("0", "1"), tmp_path)) == []
    assert engine.version() == "0.32.0+cpu"


def test_a_cpu_build_whose_command_would_not_find_its_package_is_said(tmp_path):
    engine = Vllm(vllm_at(tmp_path, [("vllm-cpu", "0.32.0")]), device="cpu")
    [missing] = engine.missing([Instance(Model(str(tmp_path), "tiny"))], Machine((), tmp_path))[:1]
    assert missing.what.startswith("metadata of the package vllm beside vllm-cpu 0.32.0")
    assert "vllm-0.32.0+cpu.dist-info/METADATA" in missing.fix


def test_nixl_has_to_be_where_vllm_is(tmp_path):
    wanted = Instance(QWEN, role="prefill", handoff=HandOff("nixl"))
    missing = Vllm(vllm_at(tmp_path)).missing([wanted], Machine(("0",), tmp_path))
    assert missing[0] == Missing(f"the module nixl of {tmp_path}/bin/python", "pip install nixl")


# Its HTTP, on the stand-in.


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vllm")
    engine = Vllm(vllm_at(folder), device="cpu")
    wanted = Instance(Model("/model", "tiny"), context_tokens=4096, cores=(0,))
    with started(engine, [wanted], folder) as [running]:
        yield running


def test_it_is_ready_when_its_health_is_good_and_says_its_version(running):
    assert running.engine.version_of(running.url) == "0.32.0"
    assert "stand-in for vLLM" in running.log.read_text()


def test_its_cache_is_reset_and_a_refusal_is_an_error(running):
    assert running.engine.reset_cache(running) == CacheState(True, "/reset_prefix_cache")
    call(running.url, "/busy", "POST", {"requests": 1})
    with pytest.raises(MachineError, match=r"/reset_prefix_cache says 200 .*let it be idle"):
        running.engine.reset_cache(running)
    call(running.url, "/busy", "POST", {"requests": 0})


def test_a_server_that_cannot_be_reset_is_known_not_to_be_empty(tmp_path):
    command = vllm_at(tmp_path)
    off = tmp_path / "bin" / "off"
    off.write_text(f'#!/bin/sh\nVLLM_SERVER_DEV_MODE=0 exec {command} "$@"\n')
    off.chmod(0o755)
    with started(Vllm(str(off)), [Instance(Model("/model", "tiny"))], tmp_path) as [running]:
        state = running.engine.reset_cache(running)
    assert state == CacheState(False, "it runs without VLLM_SERVER_DEV_MODE=1: no way to reset it")


def test_one_that_runs_already_is_attached_to_and_told_by_its_metrics(running, tmp_path):
    there = Instance(Model("Qwen/anything", "tiny"), url=f"{running.url}/")
    assert Vllm().missing([there], Machine((), tmp_path)) == []
    assert Vllm().launch(there, PORTS).command == ()
    assert Vllm().launch(there, PORTS).url == running.url
    assert External().version_of(running.url) == "vllm 0.32.0"


def test_the_router_reads_a_recorded_page_as_the_engine_that_it_says():
    """The values stand on the page, which was read from a server after 521 requests."""
    assert Vllm().signals in {engine.engine for engine in ENGINES}
    assert reading_of(PAGE.read_text()) == EngineReading(
        engine="vllm",
        waiting_requests=0,
        running_requests=0,
        kv_use=0.0,
        prefix_cache_queries=333_551,
        prefix_cache_hits=159_168,
        cached_tokens=159_168,
        prompt_tokens=333_551,
        generated_tokens=16_672,
        preemptions=0,
        kv_blocks=512,
        block_tokens=32,
    )
