"""``serve --config FILE``: what stands in it, what flags do to it, and what is refused."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pointsman.cli import serve
from pointsman.cli.kv_sources import kv_settings_of
from pointsman.cli.main import build_parser, main
from pointsman.cli.parser import Parser
from pointsman.cli.replica_tables import REPLICA_FIELDS
from pointsman.router.engine.kv_endpoint import KvEndpoint, KvSource
from pointsman.router.router_settings import head_of
from pointsman.router.upstream import replica_address

ROUTER_PAGE = Path(__file__).resolve().parents[2] / "docs" / "router.md"

WHOLE = """
listen = "127.0.0.1:0"
policy = "mine.py:mine"
slack_ms = 40
costs = "costs.toml"
seed = 3
api_keys = "/etc/keys"
forward_authorization = true
client_idle_timeout_s = 5
max_headers = 50

[[replicas]]
url = "http://a:8001"
models = ["m", "org/n"]
max_num_seqs = 128
costs = "a.json"
metrics = "http://a:9000/metrics"
kv_events = "tcp://a:5557"
weight = 2.0

[[replicas]]
url = "http://b:8001"
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "serve.toml"
    path.write_text(WHOLE)
    return path


def parsed(*flags: str):
    return build_parser().parse_args(["serve", *flags])


def test_a_file_gives_what_flags_would_have_given_with_paths_from_its_folder(file):
    arguments = parsed("--config", str(file))
    assert arguments.listen == "127.0.0.1:0"
    assert arguments.policy == f"{file.parent}/mine.py:mine"
    assert arguments.slack_ms == "40"
    assert arguments.costs == file.parent / "costs.toml"
    assert arguments.seed == 3
    assert arguments.api_keys == Path("/etc/keys")
    assert arguments.forward_authorization is True
    assert arguments.client_idle_timeout_s == 5.0
    assert arguments.max_headers == 50
    assert arguments.max_head_kb == 64  # not in the file


def test_replicas_have_what_their_tables_say(file):
    one, two = parsed("--config", str(file)).replicas
    assert one.address == replica_address("http://a:8001")
    assert one.models == ("m", "org/n")
    assert (one.max_num_seqs, one.costs) == (128, file.parent / "a.json")
    assert one.metrics == replica_address("http://a:9000/metrics")
    assert one.kv_events == "tcp://a:5557"
    assert one.weight == 2.0
    assert (two.models, two.max_num_seqs, two.weight) == ((), None, 1.0)


@pytest.mark.parametrize("is_first", [True, False])
def test_flags_win_over_the_file_wherever_they_stand(file, is_first):
    config = ["--config", str(file)]
    flags = ["--seed", "0", "--no-forward-authorization", "--max-headers=7"]
    arguments = parsed(*(flags + config if is_first else config + flags))
    assert (arguments.seed, arguments.forward_authorization, arguments.max_headers) == (0, False, 7)
    assert arguments.policy.endswith("mine.py:mine")


def test_replicas_of_flags_take_the_place_of_the_files(file):
    arguments = parsed(f"--config={file}", "--replica", "http://c")
    assert [each.address.url for each in serve._replicas(arguments)] == ["http://c"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("prefix_index_mib = 3", "key 'prefix_index_mib' is unknown;"),
        ("prefix_index_mib = 3", "did you mean prefix_index_mb?"),
        ("replica = ['http://a']", "did you mean replicas?"),
        ("config = 'other.toml'", "key 'config' is unknown"),
        ("seed = 'x'", "seed is 'x'; expected an integer"),
        ("seed = true", "seed is True; expected an integer"),
        ("seed = 2.5", "seed is 2.5; expected an integer"),
        ("client_idle_timeout_s = '5'", "client_idle_timeout_s is '5'; expected a number"),
        ("forward_authorization = 1", "forward_authorization is 1; expected true or false"),
        ("policy = 7", "policy is 7; expected a text that is not empty"),
        ("costs = ['a']", "costs is ['a']; expected a text"),
        ("slack_ms = 'soon'", "slack_ms: 'soon' is no time"),
        ("slack_ms = [1]", "slack_ms is [1]; expected a text or a number"),
        ("[listen]\nhost = 'a'", "listen is {'host': 'a'}; expected a text"),
        ("seed = ", "not TOML"),
        ("replicas = 3", "replicas is 3; expected tables, each under its own [[replicas]]"),
        ("[[replicas]]\nweight = 1", "replicas 1: url is missing"),
        ("[[replicas]]\nurl = 'a:1'", "--replica a:1: is no address"),
        ("[[replicas]]\nurl = 'http://a'\nmodel = 'm'", "did you mean models?"),
        ("[[replicas]]\nurl = 'http://a'\nmodels = []", "models is []; expected a list of names"),
        ("[[replicas]]\nurl = 'http://a'\nweight = 0", "weight is 0; expected a finite number > 0"),
        (
            "[[replicas]]\nurl = 'http://a'\nmetrics = '/metrics'",
            "replicas 1: metrics /metrics: is no address; expected http://HOST:PORT",
        ),
        ("[[replicas]]\nurl = 'http://a'\n" * 2, "http://a: is given twice"),
        ("seed = 1", "serve: no replica; expected --replica URL, --prefill URL with"),
    ],
)
def test_a_wrong_file_is_refused_with_where_and_what(tmp_path, capsys, content, message):
    path = tmp_path / "serve.toml"
    path.write_text(content)
    assert main(["serve", "--config", str(path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_a_file_that_is_not_there_is_named_with_its_nearest(file, capsys):
    assert main(["serve", "--config", str(file.with_suffix(".tml"))]) == 2
    assert f"did you mean {file}?" in capsys.readouterr().err


KV = """
[[replicas]]
url = "http://a"

[[replicas]]
url = "http://b"
kv_events = "tcp://b:5557"
kv_replay = "tcp://b:5558"

[[replicas]]
url = "http://c"
kv_events = "tcp://*:5559"
kv_topic = "kv@c"
"""


def kv_of(path: Path, text: str):
    path.write_text(text)
    replicas = serve._replicas(parsed("--config", str(path)))
    return kv_settings_of(replicas, path)


def test_events_are_followed_of_the_replicas_that_have_an_endpoint(tmp_path, capsys):
    kv = kv_of(tmp_path / "serve.toml", KV)
    assert kv.sources == [
        KvSource(
            1,
            KvEndpoint("tcp://b:5557", binds=False),
            replay=KvEndpoint("tcp://b:5558", binds=False),
        ),
        KvSource(2, KvEndpoint("tcp://*:5559", binds=True), topic="kv@c"),
    ]
    assert kv.replicas == [1, 2]
    assert capsys.readouterr().err == ""


def test_no_events_are_followed_where_nobody_has_an_endpoint(tmp_path):
    assert kv_of(tmp_path / "serve.toml", '[[replicas]]\nurl = "http://a"\n') is None


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ('kv_events = "b:5557"', "replicas 1: KV events: endpoint b:5557 is none; expected tcp://"),
        (
            'kv_events = "tcp://b:5557"\nkv_replay = "tcp://*:5558"',
            "KV events: replay endpoint tcp://*:5558 is to be bound, which the engine does",
        ),
        ('kv_topic = "kv@b"', "replicas 1: kv_topic is for kv_events, which is missing"),
        ('kv_replay = "tcp://b:5558"', "replicas 1: kv_replay is for kv_events, which is missing"),
        ('kv_event = "tcp://b:5557"', "did you mean kv_events?"),
    ],
)
def test_what_cannot_be_followed_is_refused_before_the_start(tmp_path, capsys, keys, message):
    path = tmp_path / "serve.toml"
    path.write_text(f'[[replicas]]\nurl = "http://b"\n{keys}\n')
    assert main(["serve", "--config", str(path)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_without_pyzmq_a_start_that_follows_events_names_the_extra(tmp_path):
    path = tmp_path / "serve.toml"
    path.write_text('[[replicas]]\nurl = "http://b"\nkv_events = "tcp://b:5557"\n')
    code = (
        "import sys; sys.modules['zmq'] = sys.modules['zmq.asyncio'] = None;"
        "from pointsman.cli.main import main;"
        f"sys.exit(main(['serve', '--config', {str(path)!r}]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.endswith(
        "KV events: pyzmq is not installed; pip install 'pointsman[kv-events]'\n"
    )
    assert "Traceback" not in done.stderr


def test_a_replica_has_costs_and_seats_of_its_own_where_its_table_says_so(tmp_path):
    (tmp_path / "serve.toml").write_text(
        'costs = "all.toml"\n'
        '[[replicas]]\nurl = "http://a"\ncosts = "own.toml"\nmax_num_seqs = 7\n'
        '[[replicas]]\nurl = "http://b"\n'
    )
    (tmp_path / "all.toml").write_text("prefill_ms_per_token = 2.0\n")
    (tmp_path / "own.toml").write_text("prefill_ms_per_token = 3.0\n")
    settings = serve._settings(parsed("--config", str(tmp_path / "serve.toml")))
    own, shared = settings.facts_of_replicas
    assert (own.costs.per_prefill_token_ms, own.max_num_seqs) == (3.0, 7)
    assert (shared.costs.per_prefill_token_ms, shared.max_num_seqs) == (2.0, 0)
    assert head_of(settings).facts == [own, shared]


# The page.


def flags_of_serve() -> set[str]:
    parser = Parser(prog="serve")
    serve.add_arguments(parser)
    return {action.option_strings[0] for action in parser._actions} - {"-h"}


def test_the_page_has_every_flag_and_no_other():
    documented = re.findall(r"^\| `(--[a-z0-9-]+)[ `]", ROUTER_PAGE.read_text(), re.MULTILINE)
    assert len(documented) == len(set(documented))
    assert set(documented) == flags_of_serve()


def test_the_page_has_every_key_of_a_replica_and_no_other():
    section = ROUTER_PAGE.read_text().partition("## A file instead of flags")[2].partition("\n## ")
    documented = re.findall(r"^\| `([a-z_]+)` \|", section[0], re.MULTILINE)
    assert sorted(documented) == sorted(REPLICA_FIELDS)


def test_the_pages_example_is_a_file_that_is_taken(tmp_path):
    path = tmp_path / "serve.toml"
    [example] = re.findall(r"```toml\n(.*?)```", ROUTER_PAGE.read_text(), re.DOTALL)
    path.write_text(example)
    assert len(parsed("--config", str(path)).replicas) == 2
