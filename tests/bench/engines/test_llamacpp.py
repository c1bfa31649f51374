"""llama.cpp's command line, and what is said before it is started."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pointsman.bench.engines.external import External
from pointsman.bench.engines.llamacpp import LlamaCpp
from pointsman.bench.engines.llamacpp_server import parser
from pointsman.bench.engines.machine import Machine
from pointsman.bench.engines.processes import free_ports
from pointsman.bench.engines.protocol import HandOff, Instance, Model, Ports
from pointsman.core.errors import InputError
from pointsman.router.engine.names import ENGINES
from pointsman.router.handoff.protocols import NAMES

MODEL = Model("/models/small.gguf", "small")
PORTS = Ports(18081, 18082)


def test_the_command_line_has_a_slot_a_request_and_a_thread_a_core():
    handoff = HandOff("llamacpp", Path("/slots"))
    wanted = Instance(
        MODEL,
        role="decode",
        handoff=handoff,
        max_running=4,
        context_tokens=2048,
        cores=(0, 1),
        flags=("--cache-ram-mib", "0"),
    )
    launch = LlamaCpp().launch(wanted, PORTS)
    assert launch.url == "http://127.0.0.1:18081"
    assert " ".join(launch.command) == (
        f"{sys.executable} -m pointsman.bench.engines.llamacpp_server --model /models/small.gguf"
        " --name small --port 18081 --slots 4 --context-tokens 2048 --threads 2 --cores 0,1"
        " --slot-folder /slots --cache-ram-mib 0"
    )
    assert parser().parse_args(launch.command[3:]).cache_ram_mib == 0


def test_ranks_are_refused():
    with pytest.raises(InputError, match="tp x pp is 2; expected 1: it has no ranks"):
        LlamaCpp().launch(Instance(MODEL, tp=2), PORTS)


def test_a_hand_off_without_a_folder_is_refused():
    with pytest.raises(InputError, match="folder is missing; expected one that all replicas see"):
        LlamaCpp().launch(Instance(MODEL, role="prefill", handoff=HandOff("llamacpp")), PORTS)


def test_wheel_and_model_that_are_missing_are_said_at_once(tmp_path):
    (tmp_path / "text").write_text("no model")
    instances = [
        Instance(Model(str(tmp_path / name), "small")) for name in ("text", "nowhere", "nowhere")
    ]
    engine = LlamaCpp(python=str(tmp_path / "python"))
    assert [each.what for each in engine.missing(instances, Machine((), tmp_path))] == [
        f"a Python at {tmp_path}/python",
        f"the model {tmp_path}/nowhere (No such file or directory)",
        f"GGUF in {tmp_path}/text",
    ]


def test_engines_are_called_as_the_routers_readings_and_hand_offs_call_them():
    assert LlamaCpp().signals in {engine.engine for engine in ENGINES}
    assert set(LlamaCpp().handoffs) < set(NAMES)
    assert set(External().handoffs) == set(NAMES)


# Servers that run already.


def test_without_a_url_or_an_answer_a_running_server_is_missing(tmp_path):
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    instances = [Instance(MODEL), Instance(MODEL, url=url)]
    missing = External().missing(instances, Machine((), tmp_path))
    assert [str(each) for each in missing] == [
        "the URL of a replica: give one each",
        f"an answer of {url}: start the server, or mend the URL",
    ]
    with pytest.raises(InputError, match="url is missing; expected that of a server"):
        External().launch(instances[0], PORTS)


@pytest.mark.parametrize(
    "url", ["localhost:8000", "http://:80", "http://localhost:port", "ftp://a"]
)
def test_a_url_that_is_none_is_refused(url):
    with pytest.raises(InputError, match=f"url is '{url}'; expected http://HOST:PORT"):
        External().missing([Instance(MODEL, url=url)], Machine((), Path()))
