import argparse
import asyncio
import os
import re
import signal
import socket
from hashlib import sha256
from pathlib import Path
from subprocess import PIPE

import pytest

from pointsman.bench.engines.processes import free_ports
from pointsman.cli.edge_flags import limits_of, sessions_of
from pointsman.cli.main import build_parser, main
from pointsman.cli.resilience_flags import add_resilience
from pointsman.cli.serve import _settings
from pointsman.core.errors import InputError
from pointsman.costs.iteration import IterationCosts
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.hold_order import HoldRules
from pointsman.dispatch.log_file import read_log
from pointsman.dispatch.prefix_index import DEFAULT_INDEX_BYTES
from pointsman.dispatch.record import Reading
from pointsman.replay.replay import replay_same
from pointsman.router.edge import EdgeLimits
from pointsman.router.listening import is_loopback
from pointsman.router.sessions import Sessions
from pointsman.router.settings import Resilience
from pointsman.router.upstream import replica_address
from tests.router.fake_replicas import FakeReplica, answer_json, never_answer, sized
from tests.router.raw_http import RawClient
from tests.router.routers import chat, run, until
from tests.router.serve_process import serving

CHAT = "/v1/chat/completions"
PAGE = (Path(__file__).resolve().parents[2] / "docs" / "router.md").read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_well_with_a_complete_log(tmp_path, number):
    path = tmp_path / "log"

    async def main():
        async with FakeReplica(answer_json) as one, FakeReplica(answer_json) as two:
            flags = ("--replica", one.url, "--replica", two.url, "--policy", "random")
            with serving(*flags, "--seed", "3", "--decision-log", str(path)) as router:
                async with RawClient(router.port) as client:
                    for _ in range(20):
                        await client.post(CHAT, chat())
                return router.announcement, router.stop(number)

    announcement, code = run(main())
    assert announcement.endswith("policy random; replicas: 2\n")
    assert code == 0
    log = read_log(path)
    assert log.head.seed == 3
    assert len(log.outcomes) == len(log.choices) == 20
    assert replay_same(log).differences == []


def test_costs_and_slack_come_from_flags_and_stand_in_the_log(tmp_path):
    path, costs = tmp_path / "log", tmp_path / "costs.toml"
    costs.write_text("prefill_ms_per_token = 3.0\ndecode_ms_per_token = 2.0\n")

    async def main():
        async with FakeReplica(answer_json) as fake:
            flags = ("--costs", str(costs), "--policy", "locality_aware", "--slack-ms", "40")
            flags = (*flags, "--decision-log", str(path))
            with serving("--replica", fake.url, *flags) as router:
                async with RawClient(router.port) as client:
                    await client.post(CHAT, chat(max_tokens=10))
                return router.announcement, router.stop()

    announcement, code = run(main())
    assert "policy locality_aware(slack_ms=40)" in announcement
    assert code == 0
    log = read_log(path)
    assert log.head.parameters == {"slack_ms": 40}
    assert log.head.facts == [ReplicaFacts(IterationCosts(0.0, 3.0, 2.0, 0.0))]
    assert log.choices[0].expected_work_ms == 3.0 * log.choices[0].prompt_tokens


def test_the_policy_is_told_the_objectives_and_is_the_one_that_counts_misses_unless_asked():
    async def main():
        async with FakeReplica(answer_json) as fake:
            flags = ("--replica", fake.url, "--goodput", "ttft:2000", "tpot:50")
            with serving(*flags) as router:
                return router.announcement

    assert "policy fewest_misses(ttft_ms=2000, tpot_ms=50)" in run(main())


def test_engines_metrics_are_on_the_page_of_ours_and_in_the_log(tmp_path):
    path = tmp_path / "log"
    vllm = (
        b"vllm:num_requests_waiting 3\nvllm:num_requests_running 7\nvllm:kv_cache_usage_perc 0.5\n"
    )

    async def engine(request, wire):
        if request.path == "/metrics":
            await wire.send(sized(vllm, b"text/plain"))
        else:
            await answer_json(request, wire)

    async def main():
        async with FakeReplica(engine) as fake:
            flags = ("--scrape-interval-s", "1", "--decision-log", str(path))
            with serving("--replica", fake.url, *flags) as router:
                async with RawClient(router.port) as client, asyncio.timeout(20):
                    page = b""
                    while b"pointsman_engine_waiting_requests{" not in page:
                        await asyncio.sleep(0.05)
                        page = (await client.request("GET", "/metrics")).body
                    await client.post(CHAT, chat())
                return page, router.stop()

    page, code = run(main())
    assert code == 0
    assert re.search(rb"pointsman_engine_waiting_requests\{.*\} 3", page)
    log = read_log(path)
    reading = next(event for event in log.events if isinstance(event, Reading))
    [choice] = log.choices
    assert reading.gauges == (3.0, 7.0, 0.5)
    assert choice.view["waiting"] == [3.0]
    assert choice.view["kv_use"] == [0.5]


def test_a_request_in_flight_may_end_while_the_router_stops(tmp_path):
    path = tmp_path / "log"

    async def main():
        async def script(request, wire):
            router.process.send_signal(signal.SIGTERM)
            await until(lambda: not accepts(router.port))
            await answer_json(request, wire)

        async with FakeReplica(script) as fake:
            with serving("--replica", fake.url, "--decision-log", str(path)) as router:
                async with RawClient(router.port) as client:
                    response = await client.post(CHAT, chat())
                return response.status, router.process.wait(10)

    assert run(main()) == (200, 0)
    assert read_log(path).outcomes[0].status == "ok"


def test_a_request_that_does_not_end_is_cut_off_and_logged(tmp_path):
    path = tmp_path / "log"

    async def main():
        async with FakeReplica(never_answer) as fake:
            flags = ("--replica", fake.url, "--decision-log", str(path), "--drain-ms", "100")
            with serving(*flags) as router:
                async with RawClient(router.port) as client:
                    client.send("POST", CHAT, chat())
                    await until(lambda: len(fake.requests) == 1)
                    return router.stop()

    assert run(main()) == 0
    assert read_log(path).outcomes[0].status == "cancelled"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_cuts_off_at_once_what_the_first_one_waits_for(tmp_path, number):
    path = tmp_path / "log"

    async def main():
        async with FakeReplica(never_answer) as fake:
            flags = ("--replica", fake.url, "--decision-log", str(path), "--drain-ms", "1e9")
            with serving(*flags) as router:
                async with RawClient(router.port) as client:
                    client.send("POST", CHAT, chat())
                    await until(lambda: len(fake.requests) == 1)
                    router.process.send_signal(signal.SIGTERM)
                    await until(lambda: not accepts(router.port))
                    assert router.process.poll() is None
                    return router.stop(number)

    assert run(main()) == 0
    assert read_log(path).outcomes[0].status == "cancelled"


def test_replicas_are_added_through_the_admin_api_which_wants_the_key_of_its_file(tmp_path):
    key = tmp_path / "key"
    key.write_text("0123456789abcdef\n")

    async def main():
        async with FakeReplica() as one, FakeReplica() as two:
            flags = ("--admin", "127.0.0.1:0", "--admin-key-file", str(key))
            with serving("--replica", one.url, *flags, "--policy", "round_robin") as router:
                port = int(
                    router.announcement.partition("; admin on http://127.0.0.1:")[2].partition(";")[
                        0
                    ]
                )
                async with RawClient(port) as admin, RawClient(router.port) as client:
                    body = {"url": two.url}
                    async with RawClient(port) as stranger:
                        refused = await stranger.post("/replicas", body)
                    bearer = "Bearer 0123456789abcdef"
                    added = await admin.post("/replicas", body, authorization=bearer)
                    await client.post(CHAT, chat())
                return refused.status, added.status, added.json["id"], router.stop()

    assert run(main()) == (401, 201, 1, 0)


def test_it_listens_on_loopback_only():
    with serving("--replica", "http://127.0.0.1:9") as router:
        assert accepts(router.port)
        others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), 0)}
        for address in others - {"127.0.0.1", "::1"}:
            if ":" not in address and not address.startswith("127."):
                assert not accepts(router.port, address)


def test_a_port_in_use_is_one_clear_line(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        flags = ["--listen", f"127.0.0.1:{port}", "--replica", "http://127.0.0.1:9"]
        assert main(["serve", *flags]) == 1
    assert capsys.readouterr().err == (
        f"pointsman: cannot listen on 127.0.0.1:{port}: Address already in use;"
        f" try --listen 127.0.0.1:{port + 1}, or 127.0.0.1:0 for a free port\n"
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--replica", "localhost:8000"], "--replica localhost:8000: is no address"),
        (["--replica", "https://a"], "expected http://HOST:PORT"),
        (["--replica", "http://user:pw@a"], "expected http://HOST:PORT"),
        (["--replica", "http://a:99999"], "expected http://HOST:PORT"),
        (["--replica", "http://a:0"], "--replica http://a:0: is no address"),
        (["--replica", "http://a/?x"], "expected http://HOST:PORT"),
        (["--replica", "http://a", "--replica", "http://a"], "is given twice"),
        (["--replica", "http://a", "--policy", "localty_aware"], "did you mean locality_aware?"),
        (["--replica", "http://a", "--listen", "here"], "--listen here: expected HOST:PORT"),
        (["--replica", "http://a", "--listen", "1.2.3.4:70000"], "a port in 0..65535"),
        (["--replica", "http://a", "--costs", "x.yaml"], "expected .json or .toml"),
        (["--replica=http://a", "--policy=locality_aware", "--slack-ms=-1"], "slack_ms is -1.0"),
        (["--replica", "http://a", "--policy", "random", "--slack-ms", "1"], "--slack-ms"),
        (["--replica", "http://a", "--goodput", "ttfd:3"], "ttfd"),
        (
            ["--replica=http://a", "--policy=random", "--goodput", "ttft:3"],
            "no such objective",
        ),
        (["--replica", "http://a", "--scrape-interval-s", "0.5"], "interval_s is 0.5"),
        (["--replica", "http://a", "--seed", "-1"], "--seed is -1; expected an integer >= 0"),
        (["--replica", "http://a", "--prefix-index-mb", "0"], "--prefix-index-mb is 0"),
        (["--replica", "http://a", "--max-headers", "0"], "max_headers is 0"),
        (["--replica", "http://a", "--client-idle-timeout-s", "nan"], "idle_timeout_s is nan"),
        (["--replica", "http://a", "--api-keys", "nowhere"], "nowhere: no such file"),
        (["--replica", "http://a", "--session-header", "a b"], "sessions: header is 'a b'"),
        (["--replica", "http://a", "--session-ttl-s", "0"], "sessions: ttl_ms is 0.0"),
        (["--replica", "http://a", "--tls-key", "x"], "one was given; expected both"),
        (["--replica", "http://a", "--forward-authorization"], "nothing without --api-keys"),
        (["--replica", "http://a", "--seed", str(1 << 63)], "seed is 9223372036854775808"),
        (["--replica", "http://a", "--connect-timeout-ms", "0"], "connect_ms is 0.0; expected a"),
        (["--replica", "http://a", "--first-byte-timeout-ms", "-1"], "first_byte_ms is -1.0"),
        (["--replica", "http://a", "--idle-timeout-ms", "nan"], "idle_ms is nan"),
        (["--replica", "http://a", "--retries", "-1"], "retries is -1; expected an integer >= 0"),
        (["--replica", "http://a", "--max-in-flight", "0"], "max_in_flight is 0"),
        (["--replica", "http://a", "--hold-requests", "-1"], "requests is -1"),
        (["--replica", "http://a", "--hold-mib", "-1"], "bytes is -1048576"),
        (["--replica", "http://a", "--hold-timeout-ms", "-1"], "timeout_ms is -1.0"),
        (["--replica", "http://a", "--hold-ms", "-1"], "wait_ms is -1.0; expected a finite"),
        (["--replica", "http://a", "--hold-order", "fcfs"], "goes with --hold-ms; expected both"),
        (["--replica", "http://a", "--drain-ms", "-1"], "drain_ms is -1.0"),
        (["--replica", "http://a", "--admin", "0.0.0.0:1"], "expected --admin-key-file, or a"),
        (["--replica", "http://a", "--admin", "here"], "--admin here: expected HOST:PORT"),
        (["--replica", "http://a", "--admin-key-file", "k"], "is for --admin, which is not given"),
    ],
)
def test_a_wrong_flag_is_refused(capsys, flags, message):
    assert main(["serve", *flags]) == 2
    assert message in capsys.readouterr().err


def test_the_flags_defaults_are_those_of_the_router():
    arguments = build_parser().parse_args(["serve", "--replica", "http://a"])
    assert limits_of(arguments) == EdgeLimits()
    assert sessions_of(arguments) == Sessions()
    assert arguments.prefix_index_mb << 20 == DEFAULT_INDEX_BYTES


def key_of(*flags: str) -> bytes:
    return sessions_of(build_parser().parse_args(["serve", "--replica", "http://a", *flags])).key


def test_routers_with_the_same_session_key_tell_the_same_sessions_and_others_do_not(tmp_path):
    for name, text in (("a", "0123456789abcdef"), ("b", "0123456789abcdef\n"), ("c", "f" * 16)):
        (tmp_path / name).write_text(text)
    a, b, c = (key_of("--session-key", str(tmp_path / name)) for name in "abc")
    assert a == b
    assert len({a, c, key_of(), key_of()}) == 4


def test_a_session_key_that_is_no_secret_is_refused(tmp_path, capsys):
    short = tmp_path / "short"
    short.write_text("0123456789abcde\n")
    assert main(["serve", "--replica", "http://a", "--session-key", str(short)]) == 2
    assert "holds 15 characters; expected at least 16" in capsys.readouterr().err


def test_deadlines_of_held_requests_are_made_of_the_objective_that_is_given():
    flags = ("--hold-ms", "30", "--hold-order", "earliest_deadline", "--goodput", "ttft:700")
    arguments = build_parser().parse_args(["serve", "--replica", "http://a", *flags])
    rules = _settings(arguments).resilience.holding.rules
    assert rules == HoldRules(30.0, "earliest_deadline", 1.0, 700.0)


def test_without_the_flag_nobody_is_held_for_a_replica():
    arguments = build_parser().parse_args(["serve", "--replica", "http://a"])
    assert _settings(arguments).resilience == Resilience()
    assert Resilience().holding.rules is None


def test_keys_and_limits_come_from_flags_and_a_hangup_has_the_keys_read_again(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-one\n")

    async def main():
        async with FakeReplica(answer_json) as fake:
            flags = ("--api-keys", str(keys), "--max-body-mb", "1", "--prefix-index-mb", "1")
            with serving("--replica", fake.url, *flags) as router:
                async with RawClient(router.port) as client:
                    refused = await client.post(CHAT, chat())
                async with RawClient(router.port) as client:
                    own = {"authorization": "Bearer sk-one"}
                    large = await client.post(CHAT, bytes((1 << 20) + 1), **own)
                stamp = keys.stat().st_mtime_ns
                keys.write_text("sk-two\n")
                os.utime(keys, ns=(stamp, stamp))
                router.process.send_signal(signal.SIGHUP)
                async with asyncio.timeout(10):
                    while await status_with(router.port, "sk-two") != 200:
                        pass
                old = await status_with(router.port, "sk-one")
                return refused.status, large.status, old, router.stop()

    assert run(main()) == (401, 413, 401, 0)


async def status_with(port: int, key: str) -> int:
    async with RawClient(port) as client:
        return (await client.post(CHAT, chat(), authorization=f"Bearer {key}")).status


def test_a_session_is_what_the_flags_say():
    async def main():
        async with FakeReplica(answer_json) as one, FakeReplica(answer_json) as two:
            flags = ("--session-header", "X-Chat", "--session-from-user")
            flags = (*flags, "--policy", "locality_aware")
            replicas = ("--replica", one.url, "--replica", two.url)
            with serving(*replicas, *flags) as router:
                async with RawClient(router.port) as client:
                    named = [await client.post(CHAT, chat(), x_chat="c") for _ in range(2)]
                    users = [await client.post(CHAT, chat(user="Ann")) for _ in range(2)]
        return [answer.headers["x-pointsman-reason"] for answer in named + users]

    assert run(main()) == ["queue_fallback", "sticky_session"] * 2


def test_listening_beyond_loopback_without_keys_is_warned_of(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-one\n")

    def warnings(*flags: str) -> str:
        with serving(
            "--replica", "http://127.0.0.1:9", "--listen", "0.0.0.0:0", *flags, stderr=PIPE
        ) as router:
            router.stop()
            return router.process.stderr.read()

    assert "0.0.0.0 can be reached from other machines" in warnings()
    assert "from other machines" not in warnings("--api-keys", str(keys))


def test_replicas_that_are_not_there_are_said_on_its_own_terminal():
    ports = free_ports(2)
    flags = [flag for port in ports for flag in ("--replica", f"http://127.0.0.1:{port}")]
    with serving(*flags, stderr=PIPE) as router:
        lines = [router.process.stderr.readline() for _ in range(2)]
        if "compiling" in lines[0]:  # the first start of a version
            lines = [lines[1], router.process.stderr.readline()]
    assert lines == [
        f"pointsman: replica http://127.0.0.1:{ports[0]} cannot be reached: Connection refused\n",
        f"pointsman: replica http://127.0.0.1:{ports[1]} cannot be reached: Connection refused;"
        " no replica is ready\n",
    ]


def test_a_log_that_exists_is_refused(tmp_path, capsys):
    path = tmp_path / "log"
    path.write_text("precious\n")
    flags = ["--replica", "http://a", "--listen", "127.0.0.1:0", "--decision-log", str(path)]
    assert main(["serve", *flags]) == 2
    assert path.read_text() == "precious\n"
    assert "exists; name a new file" in capsys.readouterr().err


def test_a_policy_file_is_named_in_the_log_so_that_any_folder_finds_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "from pointsman.policies.policy import policy\n"
        '@policy(rule="-", source="-", reasons=("mine",), parameters={"k": 1.0}, reads=())\n'
        "def mine(request, view, parameters):\n"
        "    return int(parameters[0]), 0\n"
    )
    path = tmp_path / "log"
    flags = ("--policy", "mine.py:mine:k=1", "--decision-log", str(path))

    async def main():
        async with FakeReplica() as one, FakeReplica() as two:
            replicas = ("--replica", one.url, "--replica", two.url)
            with serving(*replicas, *flags) as router:
                async with RawClient(router.port) as client:
                    answer = await client.post(CHAT, chat())
                    return answer.headers["x-pointsman-replica"] == two.url

    assert run(main())
    monkeypatch.chdir("/")
    log = read_log(path)
    assert log.head.policy == f"{tmp_path}/mine.py:mine"
    assert log.head.policy_sha256 == sha256((tmp_path / "mine.py").read_bytes()).hexdigest()
    assert replay_same(log).agreeing == 1


def test_the_documented_defaults_are_those_of_the_code():
    parser = argparse.ArgumentParser()
    add_resilience(parser)
    rows = [line.split("|")[1:4] for line in PAGE.splitlines() if line.startswith("| `--")]
    documented = {}
    for flags, _, defaults in rows:
        names = re.findall(r"`(--[a-z-]+)", flags)
        shown = [defaults.strip()] if len(names) == 1 else defaults.strip().split(", ")
        documented.update(zip(names, shown, strict=True))
    for action in parser._actions[1:]:
        shown = "none" if action.default is None else f"{action.default:g}"
        assert documented[action.option_strings[0]] == shown


def test_addresses_of_replicas_are_read_as_urls():
    address = replica_address("http://[::1]:8001/base/")
    assert (address.host, address.port, address.base) == ("::1", 8001, b"/base")
    assert address.authority == b"[::1]:8001"
    assert replica_address("http://engine").port == 80
    with pytest.raises(InputError):
        replica_address("http://")


@pytest.mark.parametrize(
    ("host", "is_local"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("a", False)],
)
def test_only_loopback_addresses_are_called_so(host, is_local):
    assert is_loopback(host) is is_local


def accepts(port: int, host: str = "127.0.0.1") -> bool:
    try:
        with socket.create_connection((host, port), timeout=1):
            return True
    except OSError:
        return False
