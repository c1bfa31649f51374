"""Who may ask a router that has keys."""

import os

import pytest

from pointsman.core.errors import InputError, MachineError
from pointsman.router.api_keys import ApiKeys
from tests.router.raw_http import RawClient
from tests.router.routers import bench, chat, run, until

CHAT = "/v1/chat/completions"


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "keys"
    path.write_text("# ours\nsk-one\n\n  sk-two  \n#sk-three\n")
    return path


def test_a_key_is_a_line_that_is_no_comment(key_file):
    keys = ApiKeys(key_file)
    assert len(keys) == 2
    shown = [b"Bearer sk-one", b"bearer  sk-two ", b"Bearer sk-three", b"Bearer #sk-three"]
    assert [keys.accept(value) for value in shown] == [True, True, False, False]
    others = [None, b"", b"Bearer", b"Bearer ", b"sk-one", b"Basic sk-one", b"Bearer sk-on"]
    assert not any(keys.accept(value) for value in others)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"# nothing\n", "holds no key"),
        (b"sk-one\nsk two\n", "line 2: is no key"),
        (b"\xff\xfe\n", "line 1: is no key"),
        (b"x" * 1025, "line 1: is no key; expected at most 1024 visible"),
    ],
)
def test_a_file_that_holds_no_keys_is_refused(tmp_path, content, message):
    path = tmp_path / "keys"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        ApiKeys(path)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises((InputError, MachineError), match="no such file"):
        ApiKeys(tmp_path / "keys")


def test_without_a_key_the_answer_is_a_401_in_openais_shape_and_nothing_is_passed_on(key_file):
    async def main():
        async with bench(api_keys=ApiKeys(key_file)) as at:
            refused = await at.client.post(CHAT, chat())
            async with RawClient(at.port) as wrong:
                other = await wrong.post("/v1/any", b"", authorization="Bearer sk-three")
            async with RawClient(at.port) as right:
                served = await right.post(CHAT, chat(), authorization="Bearer sk-two")
            return refused, other.status, served.status, len(at.fake.requests)

    refused, other, served, reached = run(main())
    assert (refused.status, other, served, reached) == (401, 401, 200, 1)
    assert refused.headers["www-authenticate"] == "Bearer"
    assert refused.json["error"]["code"] == "invalid_api_key"
    assert refused.json["error"]["type"] == "invalid_request_error"


def test_a_probe_without_a_key_learns_that_the_router_lives_and_no_more(key_file):
    async def main():
        async with bench(api_keys=ApiKeys(key_file)) as at:
            bare = await at.client.request("GET", "/health")
            async with RawClient(at.port) as known:
                return bare, await known.request("GET", "/health", authorization="Bearer sk-one")

    bare, full = run(main())
    assert (bare.status, bare.json) == (200, {"status": "ok"})
    assert "replicas" in full.json


def test_whether_the_router_is_ready_may_be_asked_without_a_key(key_file):
    async def main():
        async with bench(api_keys=ApiKeys(key_file)) as at:
            await until(lambda: at.router.membership.ready)
            ready = await at.client.request("GET", "/ready")
            return ready, (await at.client.request("GET", "/ready/x")).status

    ready, other = run(main())
    assert (ready.json["ready"], other) == (True, 401)


@pytest.mark.parametrize("forwarded", [False, True])
def test_a_key_of_the_router_is_passed_on_only_where_that_was_asked_for(key_file, forwarded):
    async def main():
        async with bench(api_keys=ApiKeys(key_file, forwarded=forwarded)) as at:
            await at.client.post(CHAT, chat(), authorization="Bearer sk-one")
            return at.fake.requests[0].headers.get("authorization")

    assert run(main()) == ("Bearer sk-one" if forwarded else None)


def test_keys_are_read_again_when_the_file_changes(key_file):
    async def main():
        keys = ApiKeys(key_file)
        async with bench(api_keys=keys) as at:
            key_file.write_text("sk-four\n")
            await until(lambda: keys.accept(b"Bearer sk-four"))
            return keys.accept(b"Bearer sk-one"), at.complaints

    assert run(main()) == (False, [])


def test_from_a_file_that_cannot_be_read_nothing_is_learned(key_file):
    complaints = []
    keys = ApiKeys(key_file)
    key_file.write_text("not a key\n")
    keys.reload_if_changed(complaints.append)
    keys.reload_if_changed(complaints.append)
    os.unlink(key_file)
    keys.reload_if_changed(complaints.append)
    assert keys.accept(b"Bearer sk-one")
    assert len(complaints) == 2
    assert all("the keys stay as they were" in complaint for complaint in complaints)


def test_an_emptied_file_lets_nobody_in_and_that_is_said(key_file):
    complaints = []
    keys = ApiKeys(key_file)
    key_file.write_text("# all revoked\n")
    keys.reload(complaints.append)
    assert not keys.accept(b"Bearer sk-one")
    assert "nobody is let in" in complaints[0]
