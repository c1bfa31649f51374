import re
import signal
from pathlib import Path

import pytest

from pointsman.cli.main import build_parser, main
from pointsman.cli.pick import _settings

pytest.importorskip("grpc")

import grpc

from pointsman.core.errors import MachineError
from pointsman.picker.service import HEALTH_SERVICE, PickerServer
from pointsman.picker.wire import message
from pointsman.router.settings import Probing, Resilience
from tests.picker.conversations import desk
from tests.picker.envoy_process import picking
from tests.router.fake_replicas import FakeReplica
from tests.router.raw_http import RawClient
from tests.router.routers import run

ONE = ("--replica", "http://127.0.0.1:9")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "envoy.md"
RARE = Probing(interval_ms=3.6e6, slow_start_ms=0.0)


async def health_at(port: int, service: str) -> int:
    asked, told = message("HealthCheckRequest"), message("HealthCheckResponse")
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        check = channel.unary_unary(
            f"/{HEALTH_SERVICE}/Check", asked.SerializeToString, told.FromString
        )
        return (await check(asked(service=service))).status


@pytest.mark.parametrize(
    ("service", "up", "down"),
    [
        ("liveness", 1, 1),
        ("readiness", 1, 2),
        ("envoy.service.ext_proc.v3.ExternalProcessor", 1, 2),
        ("", 1, 2),
    ],
)
def test_it_is_alive_always_and_ready_while_a_replica_is_up(service, up, down):
    async def main():
        async with FakeReplica() as fake, desk([fake.url], probing=RARE) as at:
            server = PickerServer(at.router, 1 << 20, at.complaints.append)
            port = await server.start("127.0.0.1", 0)
            first = await health_at(port, service)
            at.router.membership[0].health.cannot_be_reached("nobody listens")
            second = await health_at(port, service)
            await server.stop(0.0)
            return first, second

    assert run(main()) == (up, down)


def test_the_health_of_an_unknown_service_is_not_found_with_those_that_are():
    async def main():
        async with desk(["http://127.0.0.1:9"], probing=RARE) as at:
            server = PickerServer(at.router, 1 << 20, at.complaints.append)
            port = await server.start("127.0.0.1", 0)
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await health_at(port, "readyness")
            await server.stop(0.0)
            return raised.value

    error = run(main())
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert "'readyness' is unknown; expected one of" in error.details()


def test_a_port_that_is_taken_is_said():
    async def main():
        async with desk(["http://127.0.0.1:9"], probing=RARE) as at:
            first, second = (
                PickerServer(at.router, 1 << 20, at.complaints.append) for _ in range(2)
            )
            port = await first.start("127.0.0.1", 0)
            try:
                with pytest.raises(MachineError, match=f"cannot listen on 127.0.0.1:{port}"):
                    await second.start("127.0.0.1", port)
            finally:
                await first.stop(0.0)
                await second.stop(0.0)

    run(main())


def test_a_signal_ends_it_well():
    async def main():
        async with FakeReplica() as fake:
            with picking("--replica", fake.url, "--policy", "round_robin") as picker:
                picker.process.send_signal(signal.SIGTERM)
                return picker.process.wait(15)

    assert run(main()) == 0


def test_its_pages_are_health_readiness_and_metrics_alone():
    async def main():
        async with desk(["http://127.0.0.1:9"], probing=RARE) as at:
            from pointsman.router.listening import listener_on

            with listener_on("127.0.0.1", 0) as listener:
                await at.router.start_pages(listener)
                async with RawClient(listener.getsockname()[1]) as client:
                    paths = ("/health", "/ready", "/metrics", "/v1/models")
                    return [(await client.request("GET", path)).status for path in paths]

    assert run(main()) == [200, 200, 200, 404]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "pick: no replica; expected --replica URL"),
        (("--replica", "http://vllm:80"), "expected one, or --discover, which looks names up"),
        (("--replica", "http://10.0.0.1:80/v2"), "has a path; expected http://IP:PORT"),
        ((*ONE, "--listen", "x:y"), "--listen x:y: expected HOST:PORT"),
        ((*ONE, "--pages", "x:y"), "--pages x:y: expected HOST:PORT"),
        ((*ONE, "--policy", "round_robbin"), "did you mean round_robin?"),
        ((*ONE, "--hold-ms", "5"), "unknown flag --hold-ms"),
    ],
)
def test_what_no_picker_can_be_started_with_is_refused(capsys, flags, message):
    try:
        code = main(["pick", *flags])
    except SystemExit as error:
        code = error.code
    assert code == 2
    assert message in capsys.readouterr().err


def test_without_flags_it_does_as_the_router_but_nothing_waits():
    router = _settings(build_parser().parse_args(["pick", *ONE])).router
    usual = Resilience()
    assert (router.host, router.port) == ("127.0.0.1", 9002)
    assert router.resilience.holding.requests == 0
    assert router.resilience.holding.rules is None
    assert router.resilience.retries == usual.retries
    assert router.resilience.probing == usual.probing
    assert router.resilience.timeouts == usual.timeouts


def test_the_page_has_every_flag_of_envoy_config_and_those_that_only_pick_has():
    def flags_of(command):
        (commands,) = (a for a in build_parser()._actions if a.dest == "command")
        actions = commands.choices[command]._actions
        return {a.option_strings[0] for a in actions if a.option_strings} - {"-h", "--no-duplex"}

    rows = re.findall(r"^\| `(--[a-z-]+)[ `]", PAGE.read_text(), re.MULTILINE)
    only_pick = flags_of("pick") - flags_of("serve")
    assert set(rows) == flags_of("envoy-config") | only_pick
