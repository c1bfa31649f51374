"""``pointsman serve`` with prefill and decode apart: flags, files, and what is refused."""

import argparse
import re
from pathlib import Path

import pytest

from pointsman.cli.pair_flags import HANDOFFS, add_pairs
from pointsman.cli.parser import Parser
from pointsman.cli.serve import _settings, add_arguments
from pointsman.core.errors import InputError
from pointsman.router.handoff.protocol import CAUSES
from pointsman.router.handoff.protocols import NAMES, HandOffSettings
from pointsman.router.handoff.sglang import ROOM_BITS
from pointsman.router.prometheus.pair_counters import PairCounters

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "pairs.md").read_text()
P, D = "http://127.0.0.1:1", "http://127.0.0.1:2"
PAIR = ["--prefill", P, "--decode", D]


def settings_of(*words: str):
    parser = Parser()
    add_arguments(parser)
    return _settings(parser.parse_args(words))


def test_flags_name_the_replicas_of_each_role_and_the_protocol():
    flags = ["--prefill", P, "http://a", "--decode", D, "--handoff", "sglang"]
    settings = settings_of(*flags, "--bootstrap-port", "9000", "--handoff-timeout-ms", "50")
    assert [each.role for each in settings.options] == ["prefill", "prefill", "decode"]
    assert settings.handoff == HandOffSettings("sglang", 50.0, 9000)
    assert settings.pairing.pairs.numbered == [(0, 2), (1, 2), (2, None)]


def test_a_file_names_roles(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text(
        'handoff = "sglang"\n'
        f'[[replicas]]\nurl = "{D}"\nrole = "decode"\n'
        f'[[replicas]]\nurl = "{P}"\nrole = "prefill"\nbootstrap_port = 9001\n'
    )
    settings = settings_of("--config", str(file))
    assert settings.pairing.pairs.numbered == [(1, 0), (0, None)]
    assert settings.options[1].bootstrap_port == 9001


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (PAIR, "--prefill, --decode: want --handoff, which says how a cache gets"),
        ([*PAIR, "--handoff", "nixel"], "--handoff 'nixel' is unknown; .*did you mean nixl?"),
        (["--prefill", P, "--handoff", "nixl"], "no decode replica; expected at least one --dec"),
        (["--decode", D, "--handoff", "nixl"], "no prefill replica; expected at least one --pre"),
        (["--replica", P, "--handoff", "nixl"], f"replica {P} has no role; expected --prefill"),
        ([*PAIR, "--replica", P, "--handoff", "nixl"], "--replica: does not go with --prefill"),
        ([*PAIR, "--handoff", "nixl", "--hold-ms", "5"], "--hold-ms: does not go with --prefill"),
        (["--prefill", P, "--decode", P, "--handoff", "nixl"], f"{P}: is given twice"),
        (["--prefill", "ftp://a", "--decode", D], "--prefill ftp://a: is no address"),
        ([*PAIR, "--handoff", "nixl", "--handoff-timeout-ms", "0"], "timeout_ms is 0.0; expected"),
        ([*PAIR, "--handoff", "sglang", "--bootstrap-port", "0"], "bootstrap_port is 0; expected"),
    ],
)
def test_what_makes_no_pairs_is_refused_with_a_word(words, message):
    with pytest.raises(InputError, match=message):
        settings_of(*words)


def test_a_role_that_nobody_knows_is_refused(tmp_path):
    file = tmp_path / "config.toml"
    file.write_text(f'[[replicas]]\nurl = "{P}"\nrole = "encode"\n')
    with pytest.raises(InputError, match="role is 'encode'; expected prefill or decode"):
        settings_of("--config", str(file))


def test_the_documented_flags_causes_and_metrics_are_those_of_the_code():
    parser = argparse.ArgumentParser()
    add_pairs(parser)
    shown = dict(re.findall(r"^\| `(--[a-z-]+)[^|]*\|[^|]*\| ([\d.]+) \|$", PAGE, re.MULTILINE))
    for action in parser._actions[1:]:
        assert f"`{action.option_strings[0]} " in PAGE
        if action.default is not None:
            assert shown[action.option_strings[0]] == f"{action.default:g}"
    assert HANDOFFS == NAMES
    assert all(f"`{name}`" in PAGE for name in (*CAUSES, *NAMES))
    assert f"of {ROOM_BITS} bits" in PAGE
    counters = PairCounters([("p", "d")])
    counters.observe_handoff(0, 1.0, 1)
    metrics = re.findall(r"^# TYPE (\w+) ", counters.page(), re.MULTILINE)
    assert set(re.findall(r"`(pointsman_handoff\w+)`", PAGE)) == set(metrics)
