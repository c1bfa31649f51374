"""Replicas are started, waited for and always stopped: processes of a stand-in for an engine."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from pointsman.bench.engines.processes import Process, free_ports
from pointsman.bench.engines.protocol import HandOff, Instance
from pointsman.bench.engines.running import start, started
from pointsman.core.errors import InputError, MachineError
from tests.bench.engines.stand_in_engine import MODEL, StandIn, instance, wait_until

STARTER = """
import sys
from dataclasses import replace
from pathlib import Path
from pointsman.bench.engines.running import started
from tests.bench.engines.stand_in_engine import StandIn, instance
flags = ("--has-child", "--has-daemon")
with started(StandIn(), [instance(*flags), instance(*flags)], Path(sys.argv[1])):
    print("ready", flush=True)
    sys.stdin.read()
"""


def processes_in(log: Path) -> list[int]:
    """Those that the stand-in says."""
    return [int(pid) for pid in re.findall(r"^process (\d+)$", log.read_text(), re.MULTILINE)]


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def listens(url: str) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", urlsplit(url).port)) == 0


@pytest.fixture
def replica(tmp_path):
    """Starts one; all are stopped."""
    made = []

    def make(*flags: str, **settings):
        made.append(start(StandIn(**settings), instance(*flags), tmp_path / "engine.log"))
        return made[-1]

    yield make
    for each in made:
        each.stop()


def test_replicas_start_at_ports_of_their_own_and_none_is_left(tmp_path):
    with started(StandIn(), [instance(), instance()], tmp_path) as replicas:
        urls = [each.url for each in replicas]
        assert len(set(urls)) == 2
        assert all(listens(url) for url in urls)
        members = [pid for each in replicas for pid in each.members()]
        assert len(members) == 2
    assert not any(listens(url) for url in urls)
    assert not any(runs(pid) for pid in members)


def test_a_replica_is_a_process_group_that_is_not_ours(replica):
    running = replica("--has-child")
    running.wait_until_ready()
    groups = {os.getpgid(pid) for pid in running.members()}
    assert len(running.members()) == 2
    assert len(groups) == 1
    assert os.getpgrp() not in groups


def test_its_log_is_kept_behind_the_command_that_made_it(tmp_path):
    with started(StandIn(), [instance("--status", "200")], tmp_path) as [running]:
        log = running.log
    lines = log.read_text().splitlines()
    assert log == tmp_path / "replica-0.log"
    assert lines[0].startswith(f"$ STAND_IN='says so' {sys.executable} ")
    assert lines[0].endswith(" --status 200")
    assert lines[1] == "stand-in for an engine, says so"


def test_a_start_that_fails_says_the_last_lines_and_the_code(replica):
    running = replica("--ends-with", "3")
    with pytest.raises(MachineError) as raised:
        running.wait_until_ready()
    message = str(raised.value)
    assert message.startswith(f"stand-in at {running.url}: it ended before it was ready (code 3)")
    assert str(running.log) in message
    assert message.endswith("\nRuntimeError: no room for the weights")


def test_when_one_of_several_fails_to_start_the_others_are_stopped(tmp_path):
    broken = instance("--ends-with", "3")
    with (
        pytest.raises(MachineError, match="no room"),
        started(StandIn(), [instance(), broken], tmp_path),
    ):
        pytest.fail("it is not ready")
    assert not any(runs(pid) for pid in processes_in(tmp_path / "replica-0.log"))


def test_a_replica_that_never_gets_ready_ends_at_the_deadline(replica):
    running = replica("--status", "503")
    with pytest.raises(MachineError, match=r"not ready after 0\.5 s: /health says"):
        running.wait_until_ready(0.5)


def test_a_command_that_is_not_there_is_one_error(tmp_path):
    with pytest.raises(MachineError, match="no-such-engine: cannot be started: No such file"):
        Process(["/no-such-engine", "serve"], tmp_path / "log", {}, grace_s=1.0)
    assert (tmp_path / "log").read_text() == "$ /no-such-engine serve\n"


def test_what_ignores_sigterm_is_killed(replica):
    running = replica("--ignores-sigterm", "--has-child")
    running.wait_until_ready()
    pids = running.members()
    assert len(pids) == 2
    running.stop()
    assert running.code == 128 + signal.SIGKILL
    assert not any(runs(pid) for pid in pids)


@pytest.mark.skipif(sys.platform != "linux", reason="adopting orphans is Linux's")
def test_what_left_the_group_is_stopped_too(replica):
    running = replica("--has-daemon")
    running.wait_until_ready()
    pids = processes_in(running.log)
    assert os.getpgid(pids[0]) != os.getpgid(pids[1])
    running.stop()
    assert not any(runs(pid) for pid in pids)


def test_a_replica_that_is_killed_is_known_to_have_ended(replica):
    running = replica("--has-child")
    running.wait_until_ready()
    pids = processes_in(running.log)
    assert not running.has_ended
    running.kill()
    assert running.has_ended
    assert not any(runs(pid) for pid in pids)


def test_a_restart_is_at_the_same_place_and_the_log_goes_on(replica):
    running = replica()
    running.wait_until_ready()
    url, [before] = running.url, running.members()
    running.restart()
    [after] = running.members()
    assert (running.url, listens(url)) == (url, True)
    assert after != before
    assert running.log.read_text().count("stand-in for an engine") == 2


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_when_we_are_killed_every_process_of_every_replica_ends(tmp_path, number):
    """Groups, the child that ignores SIGTERM, and the daemon with a session of its own."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN and number == signal.SIGHUP:
        pytest.skip("started under nohup, whose children hear no SIGHUP")
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    with starter:
        assert starter.stdout.readline() == b"ready\n"
        pids = [
            pid for number in (0, 1) for pid in processes_in(tmp_path / f"replica-{number}.log")
        ]
        assert len(pids) == 6
        assert all(runs(pid) for pid in pids)
        starter.send_signal(number)
        assert starter.wait(30) == -number
    wait_until(lambda: not any(runs(pid) for pid in pids), 60.0)


def test_when_a_supervisor_is_killed_its_replica_ends(replica):
    running = replica()
    running.wait_until_ready()
    [pid] = running.members()
    os.kill(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]), 9)
    wait_until(lambda: not runs(pid))


def test_free_ports_are_different_and_below_those_of_outgoing_connections():
    ports = free_ports(50)
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert len(set(ports)) == 50
    assert all(10_240 <= port < first for port in ports)


def test_the_folder_of_a_hand_off_is_made(tmp_path):
    folder = tmp_path / "caches" / "of pairs"
    wanted = Instance(MODEL, role="prefill", handoff=HandOff("llamacpp", folder))
    with started(StandIn(), [wanted], tmp_path):
        assert folder.is_dir()


# What an instance may be.


def test_a_role_without_a_hand_off_is_refused():
    with pytest.raises(InputError, match="handoff is missing; expected one, for role is 'prefill'"):
        Instance(MODEL, role="prefill")


def test_an_unknown_role_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"role 'prefil' is unknown.*did you mean prefill"):
        Instance(MODEL, role="prefil")


def test_cores_that_the_ranks_cannot_share_in_equal_parts_are_refused():
    with pytest.raises(InputError, match="cores are 3; expected a multiple of tp x pp, which is 2"):
        Instance(MODEL, tp=2, cores=(0, 1, 2))


@pytest.mark.skipif(not hasattr(os, "getpriority"), reason="no priorities here")
def test_a_replica_that_is_to_stand_back_does_with_its_session(tmp_path):
    wanted = replace(instance(), niceness=7)
    with started(StandIn(), [wanted, instance()], tmp_path) as [nice, other]:
        assert nice.launch.command[:3] == ("nice", "-n", "7")
        assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in nice.members()} == {7}
        assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in other.members()} == {0}
        sessions = [Path(f"/proc/{each.members()[0]}/autogroup") for each in (nice, other)]
        if sessions[0].exists():  # a Linux that weighs sessions
            said = [path.read_text().split()[-1] for path in sessions]
            assert said == ["7", "0"]
        nice.restart()
        assert {os.getpriority(os.PRIO_PROCESS, pid) for pid in nice.members()} == {7}
