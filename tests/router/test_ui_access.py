"""Who may look at the live page, and what the page itself is."""

from __future__ import annotations

import argparse
import base64
import hashlib
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pointsman.cli.main import main as command
from pointsman.cli.serve import _settings, add_arguments
from pointsman.cli.ui_flags import add_ui, ui_of
from pointsman.core.errors import InputError
from pointsman.router.api_keys import ApiKeys
from pointsman.router.ui.access import UiSettings
from pointsman.router.ui.decisions import HELD, SENT, UNPLACED
from pointsman.router.ui.first_tokens import MOST_FIRST_TOKENS, TtftFigures
from pointsman.router.ui.state import ReplicaRow, State
from pointsman.router.ui.watch import MOST_DECISIONS
from pointsman.router.upstream import replica_address
from tests.router.fake_replicas import FakeReplica, answer_json
from tests.router.raw_http import RawClient
from tests.router.routers import bench, run
from tests.router.serve_process import serving

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "router.md").read_text()
NAMED = UiSettings(frozenset({"router.internal"}))


def asked(path, host="127.0.0.1", method="GET", ui=NAMED, keys=None, **headers):
    """The answer, and how many requests came to the replica."""

    async def main():
        async with bench(answer_json, ui=ui, api_keys=keys) as at:
            async with RawClient(at.port, host) as client:
                answer = await client.request(method, path, **headers)
            return answer, len(at.fake.requests)

    return run(main())


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8080", 200),
        ("[::1]:8080", 200),
        ("[::1]", 200),
        ("10.0.0.7", 200),
        ("localhost:8080", 200),
        ("Router.Internal.:8080", 200),
        ("evil.example", 403),
        ("evil.example:8080", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost.evil.example", 403),
        ("router.internal.evil.example", 403),
        ("[::1]evil.example", 403),
        ("localhost:evil.example", 403),
        ("127.0.0.1:", 403),
        ("", 403),
    ],
)
@pytest.mark.parametrize("path", ["/ui", "/ui/state"])
def test_a_name_that_nobody_told_gets_nothing(path, host, status):
    answer, forwarded = asked(path, host)
    assert (answer.status, forwarded) == (status, 0)
    assert answer.headers.get("access-control-allow-origin") is None


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"sec_fetch_site": "same-origin"}, 200),
        ({"sec_fetch_site": "none"}, 200),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
    ],
)
def test_pages_of_other_sites_get_no_figures(headers, status):
    answer, _ = asked("/ui/state", **headers)
    assert answer.status == status


def test_a_link_on_another_site_may_lead_to_the_page():
    assert asked("/ui", sec_fetch_site="cross-site")[0].status == 200


@pytest.mark.parametrize("path", ["/ui", "/ui/state"])
@pytest.mark.parametrize(("method", "status"), [("HEAD", 200), ("POST", 405), ("OPTIONS", 405)])
def test_it_is_only_read_and_never_forwarded(path, method, status):
    answer, forwarded = asked(path, method=method)
    assert (answer.status, forwarded) == (status, 0)


@pytest.mark.parametrize("path", ["/ui", "/ui/state"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_where_it_is_not_offered_nothing_is_there_and_no_replica_is_asked(path, method):
    answer, forwarded = asked(path, method=method, ui=None)
    assert (answer.status, forwarded) == (404, 0)


@pytest.mark.parametrize("ui", [NAMED, None])
def test_with_keys_the_figures_want_one_and_the_page_that_asks_for_it_does_not(tmp_path, ui):
    file = tmp_path / "keys"
    file.write_text("secret-key\n")
    for path, key, status in (
        ("/ui", {}, 200),
        ("/ui/state", {}, 401),
        ("/ui/state", {"authorization": "Bearer wrong"}, 401),
        ("/ui/state", {"authorization": "Bearer secret-key"}, 200),
        ("/ui?q=1", {}, 401),
        ("/ui/", {}, 401),
    ):
        answer, forwarded = asked(path, ui=ui, keys=ApiKeys(file), **key)
        wanted = 404 if ui is None and status == 200 else status
        assert (answer.status, forwarded) == (wanted, 0), path
        assert b"secret-key" not in answer.body


class Blocks(HTMLParser):
    """The texts of style and script, and all attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: dict[str, str] = {}
        self.attributes: list[tuple[str, str | None]] = []
        self._tag = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self._tag = tag
        self.attributes += attrs

    def handle_data(self, data):
        if self._tag in ("style", "script"):
            self.texts[self._tag] = self.texts.get(self._tag, "") + data

    def handle_endtag(self, tag):
        self._tag = ""


def test_the_policy_of_the_page_allows_its_own_style_and_script_and_nothing_else():
    answer, _ = asked("/ui")
    blocks = Blocks(answer.body.decode())
    rules = dict(
        rule.split(" ", 1) for rule in answer.headers["content-security-policy"].split("; ")
    )
    assert rules["default-src"] == rules["frame-ancestors"] == rules["base-uri"] == "'none'"
    for tag in ("style", "script"):
        digest = hashlib.sha256(blocks.texts[tag].encode()).digest()
        assert rules[f"{tag}-src"] == f"'sha256-{base64.b64encode(digest).decode()}'"
    assert not [name for name, _ in blocks.attributes if name.startswith("on") or name == "style"]


def test_the_page_names_no_other_host_and_makes_no_markup_of_text():
    text = asked("/ui")[0].body.decode()
    assert re.findall(r"https?://\w[^\s\"'`]*", text) == []
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert way not in text


def test_neither_page_nor_figures_are_kept_or_guessed_at():
    for path in ("/ui", "/ui/state"):
        headers = asked(path)[0].headers
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"


# The command.


def flags(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_ui(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize(
    ("host", "words", "names"),
    [
        ("127.0.0.1", (), {"127.0.0.1"}),
        ("localhost", (), {"localhost"}),
        ("0.0.0.0", (), None),
        ("10.0.0.7", (), None),
        ("0.0.0.0", ("--ui",), {"0.0.0.0"}),
        ("0.0.0.0", ("--ui", "--ui-host", "Router.internal"), {"0.0.0.0", "router.internal"}),
        ("127.0.0.1", ("--no-ui",), None),
    ],
)
def test_it_is_offered_on_loopback_and_elsewhere_when_asked_for(host, words, names):
    found = ui_of(flags(*words), host)
    assert found == (None if names is None else UiSettings(frozenset(names)))


@pytest.mark.parametrize(
    ("host", "words", "message"),
    [
        ("0.0.0.0", ("--ui-host", "a"), "--ui-host a: the page is not offered; expected --ui"),
        ("127.0.0.1", ("--ui-host", "http://a"), "--ui-host is 'http://a'; expected the name of"),
        ("127.0.0.1", ("--ui-host", "a:8080"), "--ui-host is 'a:8080'; expected the name of a h"),
    ],
)
def test_names_of_nothing_are_refused(host, words, message):
    with pytest.raises(InputError, match=re.escape(message)):
        ui_of(flags(*words), host)


def test_a_file_says_it_too(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text('ui = true\nui_host = ["router"]\nlisten = "0.0.0.0:0"\n')
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    parser.set_defaults(command="serve")
    words = ["--config", str(file), "--replica", "http://127.0.0.1:1"]
    assert _settings(parser.parse_args(words)).ui == UiSettings(frozenset({"0.0.0.0", "router"}))


@pytest.mark.parametrize(
    ("words", "status"),
    [((), 200), (("--no-ui",), 404), (("--listen", "0.0.0.0:0"), 404)],
)
def test_the_router_as_users_start_it(words, status):
    async def main():
        async with FakeReplica(answer_json) as fake:
            with serving("--replica", fake.url, *words) as router:
                async with RawClient(router.port, "127.0.0.1") as client:
                    return [(await client.request("GET", p)).status for p in ("/ui", "/ui/state")]

    assert run(main()) == [status, status]


def test_the_help_tells_of_it(capsys):
    with pytest.raises(SystemExit):
        command(["serve", "--help"])
    assert "--ui, --no-ui" in capsys.readouterr().out


def test_a_replicas_address_holds_no_password_that_could_be_shown():
    for url in ("http://user@host", "http://user:word@host", "http://:word@host"):
        with pytest.raises(InputError, match="is no address"):
            replica_address(url)


def test_every_field_of_the_state_is_documented_and_every_flag():
    flat = {name for kind in (State, ReplicaRow, TtftFigures) for name in kind.__struct_fields__}
    section = PAGE.partition("## The live page")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", section))
    assert flat - {"expected_cached_fraction", "reported_cached_fraction"} <= named
    assert {"place", "kind", "candidates", "result", "ttft_ms", SENT, HELD, UNPLACED} <= named
    assert f"last {MOST_DECISIONS}" in section
    assert f"{MOST_FIRST_TOKENS:,}" in section
    assert all(f"`{flag}" in PAGE for flag in ("--ui`", "--no-ui`", "--ui-host NAME`"))
