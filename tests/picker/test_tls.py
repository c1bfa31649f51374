"""TLS between Envoy and the picker, with certificates that the test signs itself."""

import pytest

from pointsman.cli.main import build_parser, main
from pointsman.cli.pick import _settings
from pointsman.core.errors import InputError
from pointsman.picker.tls import identity_in
from tests.picker.certificates import signed_for

pytest.importorskip("grpc")

import grpc

from pointsman.picker.service import HEALTH_SERVICE, PickerServer
from pointsman.picker.wire import message
from pointsman.router.settings import Probing
from tests.picker.conversations import desk
from tests.picker.envoy_process import picking, standing
from tests.router.fake_replicas import FakeReplica, answer_json
from tests.router.routers import completion, run

ONE = ("--replica", "http://127.0.0.1:9")
RARE = Probing(interval_ms=3.6e6, slow_start_ms=0.0)
NAME = "picker.test"


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return signed_for(NAME, tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return signed_for("other.test", tmp_path_factory.mktemp("other"))


def speaking(pair) -> tuple[str, ...]:
    return ("--tls-certificate", str(pair[0]), "--tls-key", str(pair[1]))


async def liveness_over(channel) -> int:
    asked, told = message("HealthCheckRequest"), message("HealthCheckResponse")
    check = channel.unary_unary(
        f"/{HEALTH_SERVICE}/Check", asked.SerializeToString, told.FromString
    )
    return (await check(asked(service="liveness"), timeout=20)).status


def answered(pair, channel_to):
    """What the channel that is made to its port hears of a picker with this certificate."""

    async def whole():
        async with desk(["http://127.0.0.1:9"], probing=RARE) as at:
            server = PickerServer(at.router, 1 << 20, at.complaints.append)
            port = await server.start("127.0.0.1", 0, identity_in(*pair))
            try:
                async with channel_to(f"127.0.0.1:{port}") as channel:
                    return await liveness_over(channel)
            finally:
                await server.stop(0.0)

    return run(whole())


def believing(pair):
    """Channels that believe in this certificate alone, for the name of the picker."""
    believed = grpc.ssl_channel_credentials(pair[0].read_bytes())
    named = (("grpc.ssl_target_name_override", NAME),)
    return lambda where: grpc.aio.secure_channel(where, believed, options=named)


def test_who_believes_in_its_certificate_is_answered(pair):
    assert answered(pair, believing(pair)) == 1


def test_who_does_not_believe_in_it_is_not(pair, other):
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        answered(pair, believing(other))
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


def test_nobody_is_answered_without_tls(pair):
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        answered(pair, grpc.aio.insecure_channel)
    assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


def test_its_first_line_says_that_it_speaks_tls(pair):
    async def whole():
        async with FakeReplica() as fake:
            flags = ("--replica", fake.url, "--policy", "round_robin", *speaking(pair))
            with picking(*flags, scheme="grpcs") as picker:
                return picker.port > 0

    assert run(whole())


def test_who_can_be_reached_without_tls_says_so(capsys, pair, other):
    open_to_all = ("pick", *ONE, "--listen", "0.0.0.0:9002", "--decision-log", "/nowhere/log")
    assert main(list(open_to_all)) == 1
    assert "gRPC is not encrypted (see --tls-certificate)" in capsys.readouterr().err
    assert main([*open_to_all, *speaking(pair)]) == 1
    assert "not encrypted" not in capsys.readouterr().err


def test_the_key_is_not_shown(pair):
    settings = _settings(build_parser().parse_args(["pick", *ONE, *speaking(pair)]))
    assert settings.identity.key == pair[1].read_bytes()
    assert "PRIVATE" not in repr(settings)


def test_a_certificate_with_the_key_of_another_is_refused(pair, other):
    with pytest.raises(InputError, match="are no certificate and its key in PEM"):
        identity_in(pair[0], other[1])


@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        ("pick", ("--tls-certificate", "c.pem"), "one was given; expected both"),
        ("pick", ("--tls-certificate", "gone.pem", "--tls-key", "k"), "gone.pem: no such file"),
        ("envoy-config", ("--picker-ca", "gone.pem"), "gone.pem: no such file"),
        ("envoy-config", ("--picker-ca", __file__), "has no certificate in PEM; expected one"),
        ("envoy-config", ("--picker-name", "x"), "does nothing without --picker-ca"),
    ],
)
def test_what_tls_cannot_be_spoken_with_is_refused(capsys, command, flags, message):
    assert main([command, *ONE, *flags]) == 2
    assert message in capsys.readouterr().err


# With a real Envoy.

DESTINED = "x-pointsman-replica"


def status_and_headers(folder, pair, *config):
    """What a client gets where the picker speaks TLS with the pair, and Envoy has these flags."""

    async def whole():
        flags = {"config": ("--failure-mode", "FailClose", *config), "pick": speaking(pair)}
        async with standing(folder, answer_json, as_process=True, scheme="grpcs", **flags) as stand:
            answer = await stand.post("/v1/completions", completion())
            return answer.status, DESTINED in answer.headers

    return run(whole())


@pytest.mark.envoy
@pytest.mark.parametrize("name", [(), ("--picker-name", NAME)], ids=" ".join)
def test_envoy_asks_a_picker_over_tls(tmp_path, pair, name):
    assert status_and_headers(tmp_path, pair, "--picker-ca", str(pair[0]), *name) == (200, True)


@pytest.mark.envoy
def test_envoy_asks_nobody_whose_certificate_it_does_not_believe(tmp_path, pair, other):
    assert status_and_headers(tmp_path, pair, "--picker-ca", str(other[0])) == (500, False)


@pytest.mark.envoy
def test_envoy_asks_nobody_whose_certificate_is_for_another_name(tmp_path, pair):
    named = ("--picker-ca", str(pair[0]), "--picker-name", "other.test")
    assert status_and_headers(tmp_path, pair, *named) == (500, False)
