"""``pointsman doctor``: what it finds, from metadata and machines made up for it."""

from __future__ import annotations

import json
import os
import socket
import stat
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from pointsman.bench.installed import Source, source_of
from pointsman.cli.doctor import page, what_is_broken
from pointsman.cli.installation import (
    GIVES,
    Installation,
    Requirement,
    extras_of,
    needed_packages,
)
from pointsman.cli.machine import (
    Cache,
    Gpus,
    Machine,
    Port,
    Program,
    Python,
    gpus_of,
    is_free,
    look_at_cache,
    look_at_machine,
)
from pointsman.cli.main import main

ROOT = Path(__file__).resolve().parents[2]

LINES = [
    "msgspec>=0.19",
    "uvloop>=0.19; sys_platform != 'win32'",
    "ray[client]>=2.30; extra == 'ray'",
    "no-such-package-of-ours>=1; extra == 'torch'",
    "pytest>=8.2; extra == 'test'",
    'no-such-package-of-ours>=1; extra == "test"',
]

MACHINE = Machine(
    python=Python("3.11.7", "/usr/bin/python3", True),
    system="Linux",
    cores=8,
    usable_cores=2,
    cache=Cache("/cache", 12, None),
    ports=(Port(8080, "serve", False), Port(9002, "pick", True)),
    programs=(Program("vllm", "an engine", "/usr/bin/vllm"), Program("envoy", "a proxy", None)),
    gpus=Gpus(("NVIDIA H200, 143771 MiB, 595.71",)),
)
WHOLE = Installation("0.1.0", (Requirement("msgspec", ">=0.19", "0.19.0"),), ())


def test_what_every_install_needs_is_told_from_extras():
    names = [each.name for each in needed_packages(LINES)]
    assert names == (["msgspec"] if sys.platform == "win32" else ["msgspec", "uvloop"])


@pytest.mark.parametrize(
    ("wanted", "installed", "is_met"),
    [
        (">=0.19", "0.19.0", True),
        (">=0.19", "0.18.9", False),
        (">=2.4", "2.11.0+cu121", True),
        (">=2.10", "2.9", False),
        ("==1.40.0", "1.40", True),
        ("==1.40.0", "1.41.0", False),
        (">=2026.10", None, False),
        ("", "1", True),
    ],
)
def test_a_version_is_enough_or_not(wanted, installed, is_met):
    assert Requirement("any", wanted, installed).is_met is is_met


def test_an_extra_is_installed_only_with_all_that_it_needs():
    extras = {each.name: each for each in extras_of(LINES, ["test", "torch"], Source())}
    assert [each.name for each in extras["ray"].requirements] == ["ray"]
    assert not extras["torch"].is_installed
    assert not extras["test"].is_installed  # pytest is there, the other one is not
    assert not extras["envoy"].is_installed  # an install that does not know it


def test_every_extra_of_the_project_has_a_word_for_what_it_gives():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(GIVES) == set(project["optional-dependencies"])


@pytest.mark.parametrize(
    ("direct_url", "command"),
    [
        (None, "pip install 'pointsman[ray]'"),
        ('{"url": "file:///my%20clone", "dir_info": {}}', "pip install '/my clone[ray]'"),
        (
            '{"url": "file:///clone", "dir_info": {"editable": true}}',
            "pip install --editable '/clone[ray]'",
        ),
        ('{"url": "https://example.org/p.whl"}', "pip install 'pointsman[ray]'"),
        ("damaged", "pip install 'pointsman[ray]'"),
    ],
)
def test_an_extra_is_installed_as_the_package_was(direct_url, command):
    assert source_of(direct_url).command("ray") == command


def test_nothing_essential_is_broken_on_a_whole_machine():
    assert what_is_broken(WHOLE, MACHINE) == ()
    assert page(WHOLE, MACHINE).endswith("Nothing essential is broken.\n")


def test_what_is_broken_is_said_with_what_to_do():
    lacking = replace(WHOLE, requirements=(Requirement("numba", ">=0.61", None),))
    old = replace(
        MACHINE,
        python=Python("3.10.1", "/usr/bin/python3", False),
        cache=Cache("/cache", 0, "/cache cannot be written"),
    )
    python, packages, cache = what_is_broken(lacking, old)
    assert python == "Python is 3.10.1; expected 3.11 or later"
    assert packages == "packages: numba missing; install Pointsman again with pip"
    assert cache.startswith("compile cache: /cache cannot be written; every run compiles anew")
    assert page(lacking, old).count("Broken: ") == 3


def test_the_page_has_what_was_found():
    extras = extras_of(LINES, [], Source())
    text = page(replace(WHOLE, extras=extras), MACHINE)
    for words in (
        "2 usable of 8",
        "8080 taken, 9002 free",
        "NVIDIA H200, 143771 MiB, 595.71",
        "/cache: 12 compiled functions",
        "/usr/bin/vllm",
        "pip install 'pointsman[kv-events]'",
    ):
        assert words in text
    assert "\x1b" not in text


def test_a_cache_is_looked_at_and_not_made(tmp_path):
    folder = tmp_path / "not" / "yet"
    assert look_at_cache(folder) == Cache(str(folder), 0, None)
    assert not folder.exists()
    (tmp_path / "kernel.nbc").write_text("")
    assert look_at_cache(tmp_path).functions == 1


def test_a_cache_behind_a_file_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    trouble = look_at_cache(tmp_path / "file" / "cache").trouble
    assert trouble == f"{tmp_path / 'file'} is no folder"


def test_a_cache_whose_name_the_machine_refuses_is_trouble_and_no_error(tmp_path):
    folder = tmp_path / ("x" * 300)  # no file system that is in use takes more than 255
    assert look_at_cache(folder).trouble == f"{folder} cannot be looked at: File name too long"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may search every folder")
def test_a_cache_under_a_folder_that_may_not_be_searched_is_trouble_and_no_error(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o000)
    folder = closed / "cache"
    assert look_at_cache(folder).trouble == f"{folder} cannot be looked at: Permission denied"


def test_a_port_that_somebody_listens_on_is_taken():
    with socket.socket() as somebody:
        somebody.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        somebody.bind(("127.0.0.1", 0))
        somebody.listen()
        assert not is_free(somebody.getsockname()[1])
    assert is_free(unused_port())


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def program(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_gpus_are_what_nvidias_program_lists(tmp_path):
    answer = "NVIDIA H200, 143771 MiB, 595.71"
    listing = program(tmp_path / "nvidia-smi", f"echo '{answer}'; echo '{answer}'")
    assert gpus_of(listing) == Gpus((answer, answer))


def test_a_driver_that_fails_is_no_traceback(tmp_path):
    failing = program(tmp_path / "nvidia-smi", "echo 'no driver' >&2; exit 9")
    assert gpus_of(failing) == Gpus((), "nvidia-smi failed: no driver")
    assert gpus_of(str(tmp_path / "none")).trouble.startswith("nvidia-smi does not answer: ")


def test_bytes_that_are_no_text_are_no_traceback(tmp_path):
    listing = program(tmp_path / "nvidia-smi", r"printf '\377 GPU\n'")
    assert gpus_of(listing) == Gpus(("\ufffd GPU",))


def test_without_the_program_none_are_seen():
    assert gpus_of(None) == Gpus((), "none are seen: nvidia-smi is not on PATH")


def test_the_command_says_it_as_a_page_and_as_a_document(capsys):
    assert main(["doctor"]) == 0
    assert capsys.readouterr().out.startswith("pointsman      ")
    assert main(["doctor", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "pointsman.doctor/1"
    assert {each["name"] for each in document["extras"]} >= set(GIVES)
    assert document["python"]["executable"] == sys.executable
    assert document["broken"] == []


def test_strict_fails_where_something_essential_is_broken(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    assert main(["doctor"]) == 0
    assert main(["doctor", "--strict"]) == 1
    assert "Broken: compile cache: " in capsys.readouterr().out
    assert look_at_machine().cache.trouble is not None
