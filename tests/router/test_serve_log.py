"""The files of ``pointsman serve --decision-log``, as users run it."""

import os
import signal

import pytest

from pointsman.cli.log_flags import rotation_of
from pointsman.cli.main import build_parser, main
from pointsman.dispatch.log_file import read_log
from pointsman.dispatch.log_rotation import Rotation
from pointsman.replay.replay import replay_same
from tests.router.fake_replicas import FakeReplica, answer_json
from tests.router.raw_http import RawClient
from tests.router.routers import chat, run, until
from tests.router.serve_process import serving

CHAT = "/v1/chat/completions"


async def ask(port: int, count: int = 3, text: str = "hello", key: str = "") -> list[int]:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with RawClient(port) as client:
        answers = [await client.post(CHAT, chat(text), **headers) for _ in range(count)]
    return [answer.status for answer in answers]


def test_on_sighup_a_log_that_was_moved_goes_on_in_a_new_file_and_the_keys_are_read(tmp_path):
    log, moved, keys = tmp_path / "log", tmp_path / "log.1", tmp_path / "keys"
    keys.write_text("first-key\n")

    async def served():
        async with FakeReplica(answer_json) as fake:
            flags = ("--decision-log", str(log), "--decision-log-mib", "0", "--api-keys", str(keys))
            with serving("--replica", fake.url, *flags) as router:
                assert await ask(router.port, key="first-key") == [200] * 3
                router.process.send_signal(signal.SIGHUP)  # nothing was moved
                assert await ask(router.port, key="first-key") == [200] * 3
                os.rename(log, moved)
                keys.write_text("second-key\n")
                router.process.send_signal(signal.SIGHUP)
                await until(log.exists, within_s=10.0)
                assert await ask(router.port, key="second-key") == [200] * 3
                return router.stop()

    assert run(served()) == 0
    assert sorted(os.listdir(tmp_path)) == ["keys", "log", "log.1"]
    assert [len(read_log(path).choices) for path in (moved, log)] == [6, 3]
    whole = replay_same(read_log(log, moved))
    assert (whole.choices, whole.differences, whole.missing_choices) == (9, [], 0)


def test_a_log_is_cut_after_so_many_mib_and_so_many_files_are_kept(tmp_path):
    """Of a prompt of 132 KB 512 blocks are logged, at 19 bytes each: at most 12 KB a request."""
    log = tmp_path / "log"

    async def served():
        async with FakeReplica(answer_json) as fake:
            flags = ("--decision-log-mib", "1", "--decision-log-keep", "2")
            flags = ("--replica", fake.url, "--decision-log", str(log), *flags)
            with serving(*flags) as router:
                while not (tmp_path / "log.2").exists():
                    await ask(router.port, 5, "All happy families are alike. " * 4_400)
                await until(lambda: not (tmp_path / "log.1").exists(), within_s=10.0)
                return router.stop()

    assert run(served()) == 0
    assert sorted(os.listdir(tmp_path)) == ["log", "log.2"]
    result = replay_same(read_log(log, tmp_path / "log.2"))
    assert result.choices >= (1 << 20) // 12_000
    assert result.differences == []


def parsed(*flags: str):
    return build_parser().parse_args(["serve", "--replica", "http://a", *flags])


def test_the_defaults_are_those_of_rotation_and_the_help_says_so(capsys):
    assert rotation_of(parsed("--decision-log", "log")) == Rotation() == Rotation(256 << 20, 0)
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    words = " ".join(capsys.readouterr().out.split())
    assert "0: never (default: 256)" in words
    assert "0: all (default: 0)" in words


def test_what_the_flags_say_is_taken():
    flags = ("--decision-log", "log", "--decision-log-mib", "3", "--decision-log-keep", "5")
    assert rotation_of(parsed(*flags)) == Rotation(3 << 20, 5)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--decision-log-mib", "1"], "--decision-log-mib: is for --decision-log, which is not"),
        (["--decision-log-keep", "1"], "--decision-log-keep: is for --decision-log, which is not"),
        (["--decision-log", "l", "--decision-log-mib", "-1"], "--decision-log-mib is -1; expected"),
        (["--decision-log", "l", "--decision-log-keep", "-1"], "--decision-log-keep is -1; expec"),
        (["--decision-log", "l", "--decision-log-mib", "2000000"], r"in 0..1048576"),
    ],
)
def test_flags_that_say_nothing_of_files_are_refused(capsys, flags, message):
    assert main(["serve", "--replica", "http://127.0.0.1:1", *flags]) == 2
    assert message in capsys.readouterr().err
