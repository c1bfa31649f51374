"""Fleets from tables of values: what each field means, and what is refused."""

from __future__ import annotations

import pytest

from pointsman import InputError
from pointsman.costs.devices import known_devices
from pointsman.costs.models import known_models
from pointsman.fleet.description import FleetDescription
from pointsman.fleet.tables import Known, Overrides, described, fleet_tables
from pointsman.sim.conditions import Change, ClosedLoop, Holding
from pointsman.sim.knowledge import Signals
from pointsman.sim.routers import Routers
from tests.fleet.cost_files import write_costs

NONE = Overrides(groups={}, tables={})
WHOLE = """
model = "llama-3.1-8b"
block_size = 32
[[replicas]]
count = 2
device = "h100-sxm"
tp = 2
role = "prefill"
max_num_batched_tokens = 16384
[[replicas]]
count = 1
device = "a100-80"
role = "decode"
max_num_seqs = 64
kv_blocks = 1000
[link]
gb_per_s = 25
base_ms = 2
contention = false
[signals]
metrics_age_ms = 1000
event_delay_ms = 20
[holding]
wait_ms = 100
order = "earliest_deadline"
[closed_loop]
concurrency = 64
think_ms = 5
[[changes]]
time_ms = 5000
replica = 1
event = "slows"
factor = 2
"""


def fleet_of(text: str, folder, overrides: Overrides = NONE) -> FleetDescription:
    path = folder / "fleet.toml"
    path.write_text(text)
    known = Known(known_models(), known_devices(), folder)
    return described(fleet_tables(path), known, overrides, "fleet.toml")


def test_every_table_of_a_file_arrives_where_it_belongs(tmp_path):
    fleet = fleet_of(WHOLE, tmp_path)
    prefill, decode = fleet.groups
    assert (prefill.hardware.model.name, prefill.hardware.device.name) == (
        "llama-3.1-8b",
        "h100-sxm",
    )
    assert (prefill.hardware.tp, prefill.hardware.max_num_batched_tokens) == (2, 16384)
    assert decode.hardware.device.name == "a100-80gb"
    assert (decode.limits.kv_blocks, decode.hardware.max_num_seqs) == (1000, 64)
    assert (fleet.replicas, fleet.gpus, fleet.block_size) == (3, 5, 32)
    assert (fleet.link.gb_per_s, fleet.link.base_ms, fleet.link.contention) == (25, 2, False)
    around = fleet.conditions
    assert around.signals == Signals(1000, 20)
    assert around.holding == Holding(100, "earliest_deadline")
    assert around.closed_loop == ClosedLoop(64, 5)
    assert around.changes == (Change(5000, 1, "slows", 2),)


def test_several_routers_of_a_file_arrive_and_a_flag_goes_before_them(tmp_path):
    group = '[[replicas]]\ncount = 2\ndevice = "h100"\nmodel = "llama-3.1-8b"\n'
    file = group + '[routers]\ncount = 4\ndealt = "session"\n'
    assert fleet_of(group, tmp_path).conditions.routers == Routers(1, "random")
    assert fleet_of(file, tmp_path).conditions.routers == Routers(4, "session")
    flags = Overrides(groups={}, tables={"routers": {"count": 2}})
    assert fleet_of(file, tmp_path, flags).conditions.routers == Routers(2, "session")


def test_flags_go_before_what_the_file_says(tmp_path):
    flags = Overrides(
        groups={"max_num_seqs": 7},
        tables={"signals": {"metrics_age_ms": 50.0}, "holding": {"order": "fcfs"}},
        model="qwen3-8b",
        block_size=64,
    )
    fleet = fleet_of(WHOLE, tmp_path, flags)
    assert {group.hardware.model.name for group in fleet.groups} == {"qwen3-8b"}
    assert [group.hardware.max_num_seqs for group in fleet.groups] == [7, 7]
    assert fleet.conditions.signals == Signals(50, 20)
    assert fleet.conditions.holding == Holding(100, "fcfs")
    assert fleet.block_size == 64


def test_the_objective_is_the_deadline_of_held_requests_where_the_file_names_none(tmp_path):
    flags = Overrides(groups={}, tables={}, ttft_ms=700.0)
    assert fleet_of(WHOLE, tmp_path, flags).conditions.holding.ttft_ms == 700.0
    named = WHOLE.replace("wait_ms = 100", "wait_ms = 100\nttft_ms = 900")
    assert fleet_of(named, tmp_path, flags).conditions.holding.ttft_ms == 900
    unheld = '[[replicas]]\ncount = 1\ndevice = "h100"\nmodel = "llama-3.1-8b"\n'
    assert fleet_of(unheld, tmp_path, flags).conditions.holding is None


def test_each_group_says_who_waits_first_and_a_flag_goes_before_it(tmp_path):
    text = GROUP + 'scheduling_policy = "priority"\n' + GROUP
    fleet = fleet_of(text, tmp_path)
    assert [group.engine(16).by_priority for group in fleet.groups] == [True, False]
    flags = Overrides(groups={"scheduling_policy": "fcfs"}, tables={})
    fleet = fleet_of(text, tmp_path, flags)
    assert [group.engine(16).by_priority for group in fleet.groups] == [False, False]


def test_costs_are_looked_up_beside_the_file(tmp_path):
    write_costs(tmp_path / "mine.json")
    fleet = fleet_of('[[replicas]]\ncount = 3\ncosts = "mine.json"\n', tmp_path)
    assert fleet.groups[0].hardware.file.engine.kv_blocks == 100
    assert fleet.gpus == 3


GROUP = '[[replicas]]\ncount = 2\ndevice = "h100"\nmodel = "llama-3.1-8b"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("model = 'llama-3.1-8b'\n", r"fleet.toml: replicas is missing"),
        ("replicas = []\n", "replicas is missing; expected at least one group"),
        ("replicas = 4\n", "replicas is 4; expected tables"),
        (GROUP.replace("count", "cuont"), "field 'cuont' is unknown; did you mean count?"),
        (GROUP.replace("2", "0"), r"replicas\[0\]: count is 0; expected an integer >= 1"),
        (GROUP.replace("2", "2.5"), "count is 2.5"),
        (GROUP.replace("2", "5000"), "replicas is 5000; expected 1..4096"),
        (GROUP.replace("h100", "h1000"), "device 'h1000' is unknown; .*did you mean h100"),
        (GROUP.replace("3.1", "3"), "model: name 'llama-3-8b' .*did you mean llama-3.1-8b"),
        (GROUP + 'role = "prefil"\n', "role 'prefil' is unknown; .*did you mean prefill"),
        (
            GROUP + 'scheduling_policy = "fifo"\n',
            r"replicas\[0\]: scheduling_policy 'fifo' is unknown; expected one of fcfs, priority",
        ),
        (GROUP + "scheduling_policy = 1\n", "scheduling_policy is 1; expected a text"),
        (GROUP + 'role = "prefill"\n', "nobody has the role decode"),
        (GROUP + GROUP + 'role = "prefill"\n', "has no role and others have one"),
        (GROUP + "tp = 3\n", "tp is 3; expected a divisor of the 32 heads"),
        (GROUP + "gpu_memory_utilization = 1.5\n", "gpu_memory_utilization is 1.5"),
        (GROUP + "max_num_seqs = -1\n", "max_num_seqs is -1; expected an integer >= 1"),
        (GROUP + 'costs = "mine.json"\n', "device does not go with costs"),
        (GROUP + "[link]\ngb_per_s = 10\n", "link: there is nothing to link"),
        (GROUP + "[link]\ngb_per_s = 0\n", "link: gb_per_s is 0; expected a finite number > 0"),
        (GROUP + "[signals]\nmetric_age_ms = 1\n", "did you mean metrics_age_ms?"),
        (GROUP + "[signals]\nevent_delay_ms = -1\n", "event_delay_ms is -1"),
        (GROUP + '[holding]\norder = "fcfs"\n', "wait_ms is missing"),
        (GROUP + '[holding]\nwait_ms = 1\norder = "lifo"\n', "order 'lifo' is unknown"),
        (GROUP + "[closed_loop]\nthink_ms = 1\n", "concurrency is missing"),
        (GROUP + '[routers]\ndealt = "session"\n', "count is missing"),
        (GROUP + "[routers]\ncount = 65\n", "count is 65; expected an integer in 1..64"),
        (GROUP + '[routers]\ncount = 2\ndealt = "sesion"\n', "did you mean session?"),
        (GROUP + "[routers]\ncount = 2\n[holding]\nwait_ms = 1\n", "2 routers are to hold"),
        (
            GROUP + '[[changes]]\ntime_ms = 1\nreplica = 2\nevent = "dies"\n',
            r"changes: replica is 2; expected a replica in 0..1",
        ),
        (
            GROUP + '[[changes]]\ntime_ms = 1\nreplica = 1\nevent = "die"\n',
            "event 'die' is unknown; .*did you mean dies",
        ),
        (
            GROUP + '[[changes]]\ntime_ms = 1\nreplica = 1\nevent = "slows"\n',
            r"changes\[0\]: factor is missing",
        ),
        (
            GROUP + '[[changes]]\ntime_ms = 1\nreplica = 1\nevent = "dies"\nfactor = 2\n',
            r"changes\[0\]: factor goes with slows, and this one dies",
        ),
        (
            GROUP + '[[changes]]\ntime_ms = 1e300\nreplica = 1\nevent = "joins"\n',
            r"time_ms is 1e\+300; expected a finite number >= 0, at most 1e\+18",
        ),
        ("count = \n", "fleet.toml: not TOML"),
        ("[[replicas]]\ncount = 2\n", "neither a device nor a file of costs"),
        ('[[replicas]]\ncount = 2\ndevice = "h100"\n', "model is missing"),
        ('[[replicas]]\ncount = 2\ncosts = "none.json"\n', "none.json: no such file"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        fleet_of(text, tmp_path)


def test_a_model_for_nobody_is_refused(tmp_path):
    write_costs(tmp_path / "mine.json")
    flags = Overrides(groups={}, tables={}, model="llama-3.1-8b")
    with pytest.raises(InputError, match="every group has costs of its own"):
        fleet_of('[[replicas]]\ncount = 3\ncosts = "mine.json"\n', tmp_path, flags)
