"""The file of ``serve --config`` that changes while the router runs: the real command."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.log_file import read_log
from pointsman.dispatch.record import Joined
from pointsman.replay.replay import replay_same
from tests.compiling import without_compiling
from tests.router.fake_replicas import CHUNKED, DONE, PIECES, FakeReplica, answer_json, chunk, sized
from tests.router.raw_http import RawClient
from tests.router.routers import chat, run, until
from tests.router.serve_process import Serving, serving

CHAT = "/v1/chat/completions"
HEAD = 'policy = "round_robin"\nslow_start_ms = 0\nadmin = "127.0.0.1:0"\n'


def table(url: str, more: str = "") -> str:
    return f'[[replicas]]\nurl = "{url}"\n{more}\n'


@dataclass
class Files:
    """A configuration file, what the router said on stderr, and a log."""

    folder: Path
    head: str = HEAD

    @property
    def config(self) -> Path:
        return self.folder / "serve.toml"

    @property
    def log(self) -> Path:
        return self.folder / "log"

    @property
    def said(self) -> str:
        """But for what is said of compiling, which depends on who ran before."""
        return without_compiling((self.folder / "stderr").read_text())

    def write(self, *tables: str, head: str | None = None) -> None:
        """As a careful tool does: the file is there as a whole or not at all."""
        new = self.folder / "new"
        new.write_text((self.head if head is None else head) + "".join(tables))
        os.replace(new, self.config)


@dataclass
class Running:
    """The router, and its clients."""

    router: Serving
    files: Files

    async def ask(self, count: int) -> list[str]:
        """Which replicas answered so many requests."""
        async with RawClient(self.router.port) as client:
            answers = [await client.post(CHAT, chat()) for _ in range(count)]
        assert {answer.status for answer in answers} == {200}
        return [answer.headers["x-pointsman-replica"] for answer in answers]

    async def health(self) -> list[dict]:
        async with RawClient(self.router.port) as client:
            return (await client.request("GET", "/health")).json["replicas"]

    async def numbers(self) -> dict[int, str]:
        return {each["id"]: each["url"] for each in await self.health()}

    async def until_numbered(self, expected: dict[int, str]) -> None:
        async with asyncio.timeout(20):
            while await self.numbers() != expected:
                await asyncio.sleep(0.02)

    async def until_said(self, words: str) -> None:
        await until(lambda: words in self.files.said, within_s=20)

    def hang_up(self) -> None:
        self.router.process.send_signal(signal.SIGHUP)

    @asynccontextmanager
    async def admin(self):
        port = int(re.search(r"admin on http:[^;]*:(\d+)", self.router.announcement)[1])
        async with RawClient(port) as client:
            yield client


@asynccontextmanager
async def following(files: Files, *flags: str):
    """A router that was started with the file as it is."""
    log = ("--decision-log", str(files.log))
    with (
        (files.folder / "stderr").open("w") as stderr,
        serving("--config", str(files.config), *log, *flags, stderr=stderr) as router,
    ):
        yield Running(router, files)


async def stream_in_two_halves(goes_on: asyncio.Event, wire) -> None:
    await wire.send(CHUNKED + chunk(PIECES[0]))
    await goes_on.wait()
    await wire.send(chunk(PIECES[1] + DONE) + b"0\r\n\r\n")


def test_a_replica_that_is_written_into_the_file_is_added_with_what_its_table_says(tmp_path):
    files = Files(tmp_path)

    async def main():
        async with FakeReplica() as one, FakeReplica() as two:
            files.write(table(one.url))
            async with following(files) as at:
                await at.ask(2)
                files.write(table(one.url), table(two.url, "max_num_seqs = 7"))
                await at.until_numbered({0: one.url, 1: two.url})
                return await at.ask(4), at.router.stop(), one.url, two.url

    answered, code, one, two = run(main())
    assert sorted(answered) == sorted([one, two] * 2)
    assert code == 0
    assert files.said == f"pointsman: {files.config}: added {two}\n"
    log = read_log(files.log)
    [joined] = [event for event in log.events if isinstance(event, Joined)]
    assert (joined.url, joined.facts) == (two, ReplicaFacts(max_num_seqs=7))
    assert replay_same(log).differences == []


def test_a_replica_that_is_gone_from_the_file_ends_its_stream_and_is_removed(tmp_path):
    files = Files(tmp_path)

    async def main():
        goes_on = asyncio.Event()

        async def script(request, wire):
            await stream_in_two_halves(goes_on, wire)

        async with FakeReplica(script) as one, FakeReplica() as two:
            files.write(table(one.url), table(two.url))
            async with following(files) as at, RawClient(at.router.port) as stream:
                stream.send("POST", CHAT, chat(stream=True))
                await until(lambda: len(one.requests) == 1)
                files.write(table(two.url))
                await at.until_said(f"drains {one.url} and removes it")
                answered = await at.ask(6)
                states = [each["state"] for each in await at.health()]
                goes_on.set()
                ended = await stream.response()
                await at.until_numbered({1: two.url})
                return answered, states, ended, [two.url] * 6

    answered, states, ended, expected = run(main())
    assert answered == expected
    assert states == ["draining", "up"]
    assert (ended.is_whole, ended.body.endswith(DONE)) == (True, True)


def test_weight_models_and_metrics_change_without_a_new_number(tmp_path):
    files = Files(tmp_path)

    async def main():
        async with FakeReplica() as one, FakeReplica() as two:
            files.write(table(one.url), table(two.url))
            async with following(files) as at:
                before = await at.ask(20)
                files.write(table(one.url), table(two.url, 'weight = 0.01\nmodels = ["m"]'))
                await at.until_said(f"changed {two.url}")
                after = await at.ask(20)
                return before.count(two.url), after.count(two.url), await at.numbers(), two.url

    before, after, numbers, two = run(main())
    assert before == 10
    assert after <= 1
    assert numbers[1] == two
    assert not [event for event in read_log(files.log).events if isinstance(event, Joined)]


def gauges(waiting: int):
    async def script(request, wire):
        page = b"vllm:num_requests_waiting %d\n" % waiting
        is_there = request.path == f"/gauges/{waiting}"
        await wire.send(sized(page, b"text/plain", b"200 OK" if is_there else b"404 Not Found"))

    return script


def test_an_engines_gauges_are_read_where_the_file_says_and_elsewhere_when_it_says_so(tmp_path):
    files = Files(tmp_path)

    async def shows(at: Running, waiting: int, url: str) -> None:
        labels = f'{{replica="{url}",engine="vllm"}}'
        wanted = f"pointsman_engine_waiting_requests{labels} {waiting}\n".encode()
        async with RawClient(at.router.port) as client, asyncio.timeout(20):
            while wanted not in (await client.request("GET", "/metrics")).body:
                await asyncio.sleep(0.05)

    async def main():
        async with (
            FakeReplica() as one,
            FakeReplica(gauges(3)) as old,
            FakeReplica(gauges(7)) as new,
        ):
            files.write(table(one.url, f'metrics = "{old.url}/gauges/3"'))
            async with following(files, "--scrape-interval-s", "1") as at:
                await shows(at, 3, one.url)
                files.write(table(one.url, f'metrics = "{new.url}/gauges/7"'))
                await shows(at, 7, one.url)
                return [request.path for request in one.requests], files.said, one.url

    asked, said, url = run(main())
    assert asked == []
    assert said == f"pointsman: {files.config}: changed {url}\n"


def test_other_facts_make_it_a_new_replica_at_the_same_address(tmp_path):
    files = Files(tmp_path)

    async def main():
        goes_on = asyncio.Event()

        async def script(request, wire):
            if b"stream" in request.body:
                await stream_in_two_halves(goes_on, wire)
            else:
                await answer_json(request, wire)

        async with FakeReplica(script) as one:
            files.write(table(one.url))
            async with following(files) as at, RawClient(at.router.port) as stream:
                stream.send("POST", CHAT, chat(stream=True))
                await until(lambda: len(one.requests) == 1)
                files.write(table(one.url, "max_num_seqs = 9"))
                await at.until_numbered({0: one.url, 1: one.url})
                await at.ask(2)
                async with RawClient(at.router.port) as client:
                    page = (await client.request("GET", "/metrics")).body.decode()
                goes_on.set()
                ended = await stream.response()
                await at.until_numbered({1: one.url})
                return ended, page, one.url, at.router.stop()

    ended, page, url, code = run(main())
    assert (ended.is_whole, ended.body.endswith(DONE), code) == (True, True, 0)
    assert f'pointsman_requests_in_flight{{replica="{url}"}} 0' in page
    assert f'pointsman_requests_in_flight{{replica="{url} (replica 0)"}} 1' in page
    log = read_log(files.log)
    [joined] = [event for event in log.events if isinstance(event, Joined)]
    assert (joined.replica, joined.facts.max_num_seqs) == (1, 9)
    assert [choice.replica for choice in log.choices] == [0, 1, 1]
    assert replay_same(log).differences == []


def test_a_broken_file_changes_nothing_and_one_line_says_so(tmp_path):
    files = Files(tmp_path)

    async def main():
        async with FakeReplica() as one, FakeReplica() as two:
            files.write(table(one.url))
            async with following(files) as at:
                files.write(table(one.url), table(two.url, "wieght = 2"))
                await at.until_said("did you mean weight?")
                broken = await at.numbers()
                files.write(table(one.url), table(two.url))
                await at.until_numbered({0: one.url, 1: two.url})
                return broken, one.url

    broken, one = run(main())
    assert broken == {0: one}
    first = files.said.splitlines()[0]
    assert first.startswith(
        f"pointsman: the configuration stays as it was: {files.config}: replicas 2:"
        " field 'wieght' is unknown;"
    )
    assert files.said.count("\n") == 2


def test_a_file_that_is_gone_or_names_nobody_changes_nothing(tmp_path):
    files = Files(tmp_path)

    async def main():
        async with FakeReplica() as one:
            files.write(table(one.url))
            async with following(files) as at:
                files.config.unlink()
                await at.until_said("no such file")
                files.write()
                await at.until_said("serve: no replica; expected")
                return await at.numbers() == {0: one.url}

    assert run(main())
    assert files.said.count("\n") == 2


def test_other_keys_that_changed_are_named_and_wait_for_a_restart(tmp_path):
    files = Files(tmp_path)

    async def main():
        async with FakeReplica() as one, FakeReplica() as two:
            files.write(table(one.url))
            async with following(files, "--max-headers", "50") as at:
                head = HEAD.replace("round_robin", "random") + "seed = 5\nmax_headers = 7\n"
                files.write(table(one.url), table(two.url), head=head)
                await at.until_numbered({0: one.url, 1: two.url})
                async with RawClient(at.router.port) as client:
                    return (await client.post(CHAT, chat())).headers["x-pointsman-policy"]

    assert run(main()) == "round_robin"
    assert files.said.splitlines()[0] == (
        f"pointsman: {files.config}: policy, seed: changed;"
        " that counts when the router is restarted"
    )


def test_a_hangup_has_the_file_read_at_once_and_says_nothing_where_nothing_changed(tmp_path):
    """The file's stamp is put back, so that only the signal can tell."""
    files = Files(tmp_path)

    async def main():
        async with FakeReplica() as one, FakeReplica() as two:
            files.write(table(one.url, "weight = 1.5"))
            stamp = files.config.stat().st_mtime_ns
            async with following(files) as at:
                at.hang_up()
                await at.ask(1)
                quiet = files.said
                text = files.config.read_text()
                files.config.write_text(text.replace("weight = 1.5", "weight = 2.5"))
                os.utime(files.config, ns=(stamp, stamp))
                at.hang_up()
                await at.until_said(f"changed {one.url}")
                return quiet, [each["weight"] for each in await at.health()], two.url

    quiet, weights, _ = run(main())
    assert quiet == ""
    assert weights == [2.5]


def test_what_the_admin_api_did_stands_until_the_file_says_something_else_of_it(tmp_path):
    files = Files(tmp_path)

    async def main():
        async with FakeReplica() as one, FakeReplica() as two, FakeReplica() as three:
            files.write(table(one.url), table(two.url))
            async with following(files) as at, at.admin() as admin:
                await admin.request("DELETE", "/replicas/1")
                await admin.post("/replicas", {"url": three.url})
                files.write(table(one.url, "weight = 3"), table(two.url))
                await at.until_said(f"changed {one.url}")
                stands = await at.numbers()
                files.write(table(one.url, "weight = 3"), table(two.url, "weight = 2"))
                await at.until_said(f"added {two.url}")
                added = await at.numbers()
                files.write(table(one.url, "weight = 3"), table(three.url))
                await at.until_numbered({0: one.url, 2: three.url})
                files.write(table(one.url, "weight = 3"))
                await at.until_numbered({0: one.url})
                return stands, added, [one.url, two.url, three.url]

    stands, added, (one, two, three) = run(main())
    assert stands == {0: one, 2: three}
    assert added == {0: one, 2: three, 3: two}


def test_replicas_of_flags_are_not_the_files_business(tmp_path):
    files = Files(tmp_path)

    async def main():
        async with FakeReplica() as one, FakeReplica() as two:
            files.write(table(two.url))
            async with following(files, "--replica", one.url) as at:
                files.write(table(two.url, "weight = 2"), head=HEAD + "seed = 1\n")
                await at.until_said("seed: changed")
                return await at.numbers() == {0: one.url}

    assert run(main())


def test_more_changes_than_there_used_to_be_room_for_are_made(tmp_path):
    """Seventy other engines at one address, one after the other: more than 64 share a word."""
    files = Files(tmp_path)

    async def main():
        async with FakeReplica() as one:
            files.write(table(one.url))
            async with following(files) as at:
                for seats in range(1, 71):
                    files.write(table(one.url, f"max_num_seqs = {seats}"))
                    at.hang_up()
                    await at.until_numbered({seats: one.url})
                    assert await at.ask(1) == [one.url]
                return at.router.stop()

    assert run(main()) == 0
    log = read_log(files.log)
    assert [choice.replica for choice in log.choices] == list(range(1, 71))
    assert replay_same(log).differences == []
