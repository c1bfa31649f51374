"""The files that a log is written to, one after the other."""

from __future__ import annotations

import os
import random
import signal
import struct
import time

import msgspec
import pytest

from pointsman.core.errors import InputError
from pointsman.dispatch.facts import ReplicaFacts
from pointsman.dispatch.ledger import Ledger
from pointsman.dispatch.log_file import read_log
from pointsman.dispatch.log_rotation import OlderFile, Rotation, identity_of
from pointsman.dispatch.log_writer import DecisionLog
from pointsman.dispatch.record import Snapshot
from pointsman.dispatch.snapshot import snapshot_of
from tests.dispatch.test_log_file import HEAD, choice, unheard

EACH = Rotation(most_bytes=1)  # whenever it is asked to


class Asking:
    """A log, and the ledger of its choices, which all go to replica 0 and stay in flight."""

    def __init__(self, path, rotation=EACH, complain=unheard, **given) -> None:
        self.log = DecisionLog(path, HEAD, complain, rotation, **given)
        self.ledger = Ledger([ReplicaFacts()] * 2)
        self.path = path

    def ask(self, count: int = 1) -> None:
        for _ in range(count):
            self.log.write(choice(self.ledger.next_number))
            self.ledger.send(0, (70, 70), 1.5, True)

    def rotate(self) -> None:
        self.log.rotate_if_full(self.snapshot)

    def reopen(self) -> None:
        self.log.reopen_if_moved(self.snapshot)

    def snapshot(self) -> Snapshot:
        return snapshot_of(self.ledger, 1.5)

    def files(self) -> list[str]:
        return sorted(os.listdir(self.path.parent))


@pytest.fixture
def begin():
    """Makes an ``Asking``, whose log is closed in the end."""
    begun = []

    def new(*arguments, **named) -> Asking:
        begun.append(Asking(*arguments, **named))
        return begun[-1]

    yield new
    for asking in begun:
        asking.log.close()


def sequences(*paths) -> list[int]:
    return [line.sequence for line in read_log(*paths).choices]


def events(path) -> list[str]:
    return [msgspec.json.decode(line)["event"] for line in path.read_bytes().splitlines()]


def test_the_file_being_written_keeps_its_name_and_those_before_it_their_numbers(begin, tmp_path):
    at = begin(tmp_path / "log")
    for _ in range(3):
        at.ask()
        at.rotate()
    at.ask()
    at.log.close()
    assert at.files() == ["log", "log.1", "log.2", "log.3"]
    assert [sequences(tmp_path / name) for name in at.files()] == [[3], [0], [1], [2]]
    assert events(tmp_path / "log.1") == ["log", "choice"]
    assert events(tmp_path / "log.2") == events(tmp_path / "log") == ["log", "snapshot", "choice"]
    heads = {(tmp_path / name).read_bytes().splitlines()[0] for name in at.files()}
    assert len(heads) == 1


def test_a_file_is_as_long_as_told_its_snapshot_not_counted(begin, tmp_path):
    line_bytes = len(msgspec.json.encode(choice(0))) + 1
    at = begin(tmp_path / "log", Rotation(most_bytes=3 * line_bytes))
    for _ in range(10):
        at.ask()
        at.rotate()
    second, third = (sequences(tmp_path / name) for name in ("log.2", "log.3"))
    assert len(second) == len(third) == 3


def test_without_a_length_there_is_one_file(begin, tmp_path):
    at = begin(tmp_path / "log", Rotation(most_bytes=0))
    at.ask(1_000)
    at.rotate()
    assert at.files() == ["log"]


@pytest.mark.parametrize(
    ("keep", "files"),
    [
        (0, ["log", "log.1", "log.2", "log.3", "log.4", "log.5"]),
        (1, ["log"]),
        (3, ["log", "log.4", "log.5"]),
        (9, ["log", "log.1", "log.2", "log.3", "log.4", "log.5"]),
    ],
)
def test_the_oldest_are_deleted_and_no_others(begin, tmp_path, keep, files):
    (tmp_path / "other.1").write_text("not ours")
    at = begin(tmp_path / "log", Rotation(1, keep))
    (tmp_path / "log.0").write_text("not ours")
    (tmp_path / "log.77").write_text("not ours")
    for _ in range(5):
        at.ask()
        at.rotate()
    assert at.files() == sorted([*files, "log.0", "log.77", "other.1"])


def test_the_deletion_is_left_to_whoever_has_the_time(begin, tmp_path):
    left = []
    at = begin(tmp_path / "log", Rotation(1, keep=1), aside=left.append)
    at.ask()
    at.rotate()
    assert at.files() == ["log", "log.1"]
    left[0]()
    assert at.files() == ["log"]


def test_a_file_that_somebody_else_put_there_is_not_overwritten(begin, tmp_path):
    at = begin(tmp_path / "log", Rotation(1, keep=2))
    (tmp_path / "log.1").write_text("not ours")
    for _ in range(2):
        at.ask()
        at.rotate()
    assert at.files() == ["log", "log.1", "log.3"]
    assert (tmp_path / "log.1").read_text() == "not ours"


@pytest.mark.parametrize("name", ["log.1", "log.new"])
def test_a_run_does_not_start_among_the_files_of_another(begin, tmp_path, name):
    (tmp_path / name).write_text("{}")
    with pytest.raises(InputError, match=rf"decision log .*log: .*{name} is there, of another run"):
        begin(tmp_path / "log")
    assert os.listdir(tmp_path) == [name]


def test_whoever_moves_the_files_may_leave_the_older_ones_there(begin, tmp_path):
    (tmp_path / "log.1").write_text("moved there by logrotate")
    begin(tmp_path / "log", Rotation(most_bytes=0))


def test_a_link_is_followed_and_the_older_files_lie_where_it_leads(begin, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "log").symlink_to(tmp_path / "disk" / "decisions")
    at = begin(tmp_path / "log")
    at.ask()
    at.rotate()
    assert at.files() == ["disk", "log"]
    assert sorted(os.listdir(tmp_path / "disk")) == ["decisions", "decisions.1"]
    assert (tmp_path / "log").is_symlink()


def test_a_pipe_is_never_cut(begin, tmp_path):
    os.mkfifo(tmp_path / "log")
    reader = os.open(tmp_path / "log", os.O_RDONLY | os.O_NONBLOCK)
    at = begin(tmp_path / "log")
    at.ask(2)
    at.rotate()
    at.reopen()
    at.log.close()
    assert os.read(reader, 1 << 16).count(b'"event":"choice"') == 2
    os.close(reader)
    assert at.files() == ["log"]


def test_where_no_further_file_can_be_made_the_log_goes_on_in_this_one(begin, tmp_path):
    heard = []
    at = begin(tmp_path / "log", complain=heard.append)
    at.ask()
    (tmp_path / "log.new").mkdir()
    at.rotate()
    at.ask()
    at.log.flush()
    assert heard == [f"decision log {tmp_path / 'log'}: no further file: File exists"]
    assert sequences(tmp_path / "log") == [0, 1]
    (tmp_path / "log.new").rmdir()
    at.rotate()
    assert at.files() == ["log", "log.1"]


def test_another_file_in_the_place_of_an_older_one_is_not_deleted(begin, tmp_path):
    at = begin(tmp_path / "log", Rotation(1, keep=2))
    at.ask()
    at.rotate()
    os.rename(tmp_path / "log.1", tmp_path / "kept")
    (tmp_path / "log.1").write_text("not ours")
    at.ask()
    at.rotate()
    assert at.files() == ["kept", "log", "log.1", "log.2"]


def test_a_file_that_cannot_be_deleted_is_said_and_one_that_is_gone_is_not(tmp_path):
    heard = []
    folder = OlderFile(tmp_path, identity_of(os.stat(tmp_path)))
    folder.delete(heard.append)
    OlderFile(tmp_path / "gone", (1, 1)).delete(heard.append)
    assert heard == [f"decision log: cannot delete {tmp_path}: Is a directory"]


# SIGHUP.


def test_a_file_that_was_moved_is_followed_by_a_new_one(begin, tmp_path):
    at = begin(tmp_path / "log", Rotation(most_bytes=0))
    at.ask(2)
    os.rename(tmp_path / "log", tmp_path / "log.1.moved")
    at.ask()  # still goes where the file is now
    at.reopen()
    at.ask()
    at.log.close()
    assert at.files() == ["log", "log.1.moved"]
    assert sequences(tmp_path / "log.1.moved") == [0, 1, 2]
    assert sequences(tmp_path / "log") == [3]


def test_a_file_that_was_not_moved_is_left_alone(begin, tmp_path):
    at = begin(tmp_path / "log")
    at.ask()
    at.reopen()
    assert at.files() == ["log"]


def test_a_file_that_was_removed_is_followed_by_a_new_one(begin, tmp_path):
    at = begin(tmp_path / "log")
    at.ask()
    (tmp_path / "log").unlink()
    at.reopen()
    at.ask()
    at.log.close()
    assert sequences(tmp_path / "log") == [1]


def test_an_empty_file_in_its_place_is_replaced_and_another_one_is_not(begin, tmp_path):
    heard = []
    at = begin(tmp_path / "log", complain=heard.append)
    at.ask()
    os.rename(tmp_path / "log", tmp_path / "moved")
    (tmp_path / "log").write_text("of somebody else")
    at.reopen()
    assert heard == [
        f"decision log {tmp_path / 'log'}: no further file: another file stands at"
        f" {tmp_path / 'log'}"
    ]
    assert at.files() == ["log", "moved"]
    assert (tmp_path / "log").read_text() == "of somebody else"
    (tmp_path / "log").write_text("")
    at.ask()
    at.reopen()
    assert sequences(tmp_path / "moved") == [0, 1]
    assert read_log(tmp_path / "log").next_sequence == 2


def test_a_log_that_was_closed_begins_no_further_file(begin, tmp_path):
    at = begin(tmp_path / "log")
    at.ask()
    at.log.close()
    os.rename(tmp_path / "log", tmp_path / "moved")
    at.reopen()
    at.rotate()
    assert at.files() == ["moved"]


def test_files_moved_away_are_never_deleted(begin, tmp_path):
    at = begin(tmp_path / "log", Rotation(1, keep=1))
    for number in range(3):
        at.ask()
        os.rename(tmp_path / "log", tmp_path / f"kept-{number}")
        at.reopen()
    assert at.files() == ["kept-0", "kept-1", "kept-2", "log"]


def test_a_log_that_a_full_disk_ended_goes_on_in_a_new_file(begin, tmp_path):
    """A limit on the length of files stands for the disk: writing beyond it fails alike."""
    heard = []
    at = begin(tmp_path / "log", Rotation(most_bytes=0), heard.append)
    at.ask()
    at.log.flush()
    with no_file_longer_than((tmp_path / "log").stat().st_size + 100):
        at.ask(2)
        at.log.flush()
        at.ask()
        at.log.flush()
    assert at.log.lost_lines == 3
    at.rotate()
    assert at.files() == ["log"]
    at.reopen()
    at.ask()
    at.log.close()
    assert at.files() == ["log", "log.1"]
    log = read_log(tmp_path / "log.1", tmp_path / "log")
    assert [line.sequence for line in log.choices] == [0, 4]
    assert (log.missing_choices, log.truncated_lines) == (3, 1)
    assert [line.partition(": ")[2] for line in heard] == [
        "File too large; the log ends here, requests go on",
        "3 lines were not written",
    ]


class no_file_longer_than:  # noqa: N801 - reads as a statement
    def __init__(self, size: int) -> None:
        self.size = size

    def __enter__(self) -> None:
        import resource

        self.handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.before[1]))

    def __exit__(self, *error: object) -> None:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)
        signal.signal(signal.SIGXFSZ, self.handler)


# Killed.


def test_killed_at_any_instant_a_router_has_lost_no_line_that_the_system_had(tmp_path):
    """A child writes and rotates without pause and tells what it has flushed; it is killed."""
    draws = random.Random(11)
    for run in range(20):
        folder = tmp_path / str(run)
        folder.mkdir()
        told = told_until_killed(folder / "log", draws.uniform(0.0, 0.03))
        numbers = sorted(
            int(name.rpartition(".")[2]) for name in os.listdir(folder) if name[-1].isdigit()
        )
        assert numbers == list(range(1, len(numbers) + 1))
        paths = [folder / f"log.{number}" for number in numbers]
        paths += [folder / "log"] if (folder / "log").exists() else []
        found = sequences(*paths)
        assert found == list(range(len(found)))
        assert len(found) >= told


def told_until_killed(path, after_s: float) -> int:
    """How many choices the child had flushed, as it said, before it was killed."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            at = Asking(path)
            for number in range(1, 1_000_000):
                at.ask()
                at.log.flush()
                os.write(write, struct.pack("<q", number))
                at.rotate()
        finally:
            os._exit(1)
    os.close(write)
    words = os.read(read, 8)  # it has begun
    time.sleep(after_s)  # any instant will do
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    while piece := os.read(read, 1 << 16):
        words += piece
    os.close(read)
    return struct.unpack("<q", words[-8:])[0]


@pytest.mark.parametrize("given", [{"most_bytes": -1}, {"keep": -1}, {"keep": 1.5}])
def test_numbers_that_are_none_are_refused(given):
    with pytest.raises(InputError, match=f"decision log: {next(iter(given))} is"):
        Rotation(**given)
