"""TLS towards the clients, with a certificate that the test signs itself."""

import asyncio
import json
import shutil
import ssl
import subprocess

import pytest

from pointsman.core.errors import InputError
from pointsman.router.tls import server_context
from tests.router.fake_replicas import STREAM, FakeReplica, answer_stream
from tests.router.raw_http import RawClient
from tests.router.routers import bench, chat, run, until
from tests.router.serve_process import serving

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A certificate for localhost and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not there to sign a certificate")
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
            *("-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


class TlsClient(RawClient):
    """One connection that trusts this certificate alone."""

    def __init__(self, port: int, certificate) -> None:
        super().__init__(port)
        self._context = ssl.create_default_context(cafile=certificate)

    async def __aenter__(self):
        self.reader, self.writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self._context, server_hostname="localhost"
        )
        return self


def test_a_stream_reaches_a_client_over_tls_and_the_connection_is_used_again(pair):
    async def main():
        tls = server_context(*pair)
        async with bench(answer_stream, tls=tls) as at, TlsClient(at.port, pair[0]) as client:
            first = await client.post(CHAT, chat(stream=True))
            second = await client.post(CHAT, chat(stream=True))
            return first, second, at.fake.connections

    first, second, connections = run(main())
    assert (first.body, second.body, connections) == (STREAM, STREAM, 1)
    assert first.is_whole


def test_what_is_wrong_is_refused_over_tls_too(pair):
    async def main():
        async with bench(tls=server_context(*pair)) as at, TlsClient(at.port, pair[0]) as client:
            client.writer.write(b"GARBAGE\r\n\r\n")
            response = await client.response()
            await until(lambda: len(at.router.edge.connections) <= 1)
            return response.status, at.complaints

    assert run(main()) == (400, [])


def test_a_client_that_speaks_no_tls_gets_nothing_and_the_others_go_on(pair):
    async def main():
        async with bench(tls=server_context(*pair)) as at:
            at.client.send("POST", CHAT, chat())
            nothing = await at.client.reader.read()
            async with TlsClient(at.port, pair[0]) as client:
                return nothing, (await client.post(CHAT, chat())).status, len(at.fake.requests)

    nothing, status, reached = run(main())
    assert not nothing.startswith(b"HTTP")
    assert (status, reached) == (200, 1)


def test_it_is_served_from_a_file_that_names_certificate_and_key(pair, tmp_path):
    async def main():
        async with FakeReplica(answer_stream) as fake:
            config = tmp_path / "serve.toml"
            config.write_text(
                f"tls_certificate = {json.dumps(str(pair[0]))}\n"
                f"tls_key = {json.dumps(str(pair[1]))}\n"
                f'[[replicas]]\nurl = "{fake.url}"\nmodels = ["m"]\n'
            )
            with serving("--config", str(config)) as router:
                async with TlsClient(router.port, pair[0]) as client:
                    served = await client.post(CHAT, chat(stream=True))
                    unknown = await client.post(CHAT, chat(model="other"))
                    return router.announcement, served.body, unknown.status

    announcement, body, unknown = run(main())
    assert announcement.startswith("listening on https://127.0.0.1:")
    assert (body, unknown) == (STREAM, 404)


def test_what_is_no_certificate_or_not_its_key_is_refused(pair, tmp_path):
    certificate, key = pair
    junk = tmp_path / "junk.pem"
    junk.write_text("junk")
    for wrong in ((junk, key), (certificate, junk), (key, certificate)):
        with pytest.raises(InputError, match="are no certificate and its key in PEM"):
            server_context(*wrong)
    with pytest.raises(InputError, match="no such file"):
        server_context(tmp_path / "nothing", key)


def test_a_key_with_a_password_is_refused_and_nobody_is_asked(pair, tmp_path):
    locked = tmp_path / "locked.pem"
    subprocess.run(
        ["openssl", "ec", "-aes256", "-passout", "pass:secret", "-in", pair[1], "-out", locked],
        check=True,
        capture_output=True,
    )
    with pytest.raises(InputError, match="without a password"):
        server_context(pair[0], locked)
