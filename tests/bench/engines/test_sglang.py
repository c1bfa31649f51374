"""SGLang's command lines by its sources, and its HTTP on a stand-in: SGLang itself was not run."""

from __future__ import annotations

import json

import pytest

from pointsman.bench.engines.external import External
from pointsman.bench.engines.http_calls import call
from pointsman.bench.engines.machine import Machine
from pointsman.bench.engines.protocol import CacheState, HandOff, Instance, Model, Ports
from pointsman.bench.engines.running import started
from pointsman.bench.engines.sglang import Sglang
from pointsman.bench.missing import Missing
from pointsman.core.errors import InputError, MachineError
from pointsman.router.engine.reading import reading_of
from tests.bench.engines.sglang_stand_in import PAGE, sglang_at
from tests.router.serve_process import serving

QWEN = Model("Qwen/Qwen2.5-0.5B-Instruct", "qwen", revision="7ae5576", dtype="bfloat16")
ENGINE = Sglang(python="/sglang/bin/python")
PORTS = Ports(30000, 8998)
BASE = (
    "/sglang/bin/python -m sglang.launch_server --model-path Qwen/Qwen2.5-0.5B-Instruct"
    " --served-model-name qwen --host 127.0.0.1 --port 30000"
)
APART = HandOff("sglang")


def test_the_command_line_has_ranks_lengths_and_what_answers_tell():
    wanted = Instance(QWEN, tp=4, pp=2, context_tokens=4096, max_running=64, gpus=("2", "3"))
    launch = ENGINE.launch(wanted, PORTS)
    assert launch.url == "http://127.0.0.1:30000"
    assert " ".join(launch.command) == (
        f"{BASE} --tp-size 4 --pp-size 2 --revision 7ae5576 --dtype bfloat16 --context-length 4096"
        " --max-running-requests 64 --enable-metrics --enable-cache-report"
    )
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    assert dict(launch.environment) == {"CUDA_VISIBLE_DEVICES": "2,3", **offline}
    assert launch.bootstrap_port is None


def test_prefill_has_a_bootstrap_port_of_its_own_and_decode_none():
    prefill = ENGINE.launch(Instance(QWEN, role="prefill", handoff=APART), PORTS)
    decode = ENGINE.launch(Instance(QWEN, role="decode", handoff=APART), PORTS)
    assert " ".join(prefill.command).endswith(
        " --disaggregation-mode prefill --disaggregation-transfer-backend nixl"
        " --disaggregation-bootstrap-port 8998"
    )
    assert " ".join(decode.command).endswith(
        " --disaggregation-mode decode --disaggregation-transfer-backend nixl"
    )
    assert (prefill.bootstrap_port, decode.bootstrap_port) == (8998, None)


def test_a_hand_off_of_another_engine_is_refused():
    with pytest.raises(InputError, match="hand-off 'nixl' is unknown; expected one of sglang"):
        ENGINE.launch(Instance(QWEN, role="decode", handoff=HandOff("nixl")), PORTS)


def test_all_that_is_missing_is_said_at_once(tmp_path):
    missing = ENGINE.missing([Instance(QWEN)], Machine((), tmp_path))
    assert [each.what for each in missing] == [
        "a Python at /sglang/bin/python",
        f"the model Qwen/Qwen2.5-0.5B-Instruct in {tmp_path}",
    ]
    assert ENGINE.version() is None


def test_what_moves_caches_has_to_be_where_sglang_is(tmp_path):
    engine = Sglang(sglang_at(tmp_path), transfer="mooncake")
    wanted = [Instance(QWEN, role="decode", handoff=APART)]
    assert engine.version() == "0.5.23"
    assert engine.missing(wanted, Machine(("0",), tmp_path))[0] == Missing(
        f"the module mooncake of {tmp_path}/bin/python", "install what mooncake needs there"
    )


# Its HTTP, on the stand-in.


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sglang")
    with started(Sglang(sglang_at(folder)), [Instance(QWEN)], folder) as [running]:
        yield running


def test_it_is_ready_when_its_health_is_good_and_says_its_version(running):
    assert running.engine.version_of(running.url) == "0.5.23"
    assert "stand-in for SGLang" in running.log.read_text()


def test_its_cache_is_flushed_and_a_refusal_is_an_error(running):
    assert running.engine.reset_cache(running) == CacheState(True, "/flush_cache")
    call(running.url, "/busy", "POST", {"requests": 1})
    with pytest.raises(MachineError, match="/flush_cache says 400 Flush cache failed"):
        running.engine.reset_cache(running)
    call(running.url, "/busy", "POST", {"requests": 0})


def test_one_that_runs_already_is_told_by_its_metrics(running, tmp_path):
    there = Instance(QWEN, url=running.url)
    assert External().missing([there], Machine((), tmp_path)) == []
    assert External().version_of(running.url) == "sglang 0.5.23"
    with started(External(), [there], tmp_path) as [attached]:
        assert External().reset_cache(attached) == CacheState(True, "/flush_cache")


def test_the_router_reads_its_page_as_the_engine_that_it_says():
    assert reading_of(PAGE.read_text()).engine == Sglang().signals


def test_the_router_hands_over_between_replicas_with_bootstrap_ports_of_their_own(tmp_path):
    roles = ("prefill", "prefill", "decode")
    wanted = [Instance(QWEN, role=role, handoff=APART) for role in roles]
    with started(Sglang(sglang_at(tmp_path)), wanted, tmp_path) as replicas:
        ports = [each.bootstrap_port for each in replicas]
        assert ports[0] != ports[1]
        file = tmp_path / "router.toml"
        file.write_text('handoff = "sglang"\n' + "".join(map(table_of, replicas)))
        with serving("--config", str(file), "--policy", "round_robin") as router:
            url, body = f"http://127.0.0.1:{router.port}", {"prompt": "Hello", "max_tokens": 2}
            answers = [call(url, "/v1/completions", "POST", body) for _ in range(4)]
    assert [json.loads(each.body)["choices"][0]["text"] for each in answers] == ["by decode"] * 4


def table_of(replica) -> str:
    lines = ["[[replicas]]", f'url = "{replica.url}"', f'role = "{replica.instance.role}"']
    if replica.bootstrap_port is not None:
        lines.append(f"bootstrap_port = {replica.bootstrap_port}")
    return "\n".join(lines) + "\n"
