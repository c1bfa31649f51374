"""What a rank finds before it joins the others; torch itself is in test_two_ranks.py."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from pointsman.bench.mechanism.asked import MechanismAsked
from pointsman.bench.mechanism.ranks import Place, Ranks, measured, place_of, profile_of
from pointsman.core.errors import InputError, MachineError

TORCHRUNS = {
    "RANK": "1",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "2",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "29500",
}


def stand_in_for_torch(gpus):
    cuda = SimpleNamespace(is_available=lambda: gpus > 0, device_count=lambda: gpus)
    return SimpleNamespace(cuda=cuda)


def test_a_place_is_what_torchrun_says():
    assert place_of(TORCHRUNS) == Place(1, 1, 2, "localhost", 29500)


@pytest.mark.parametrize("name", TORCHRUNS)
def test_a_process_that_torchrun_did_not_start_is_told_so(name):
    with pytest.raises(InputError, match="torchrun did not start this process; expected torchrun"):
        place_of({key: value for key, value in TORCHRUNS.items() if key != name})


def test_one_rank_has_nobody_to_share_with():
    with pytest.raises(InputError, match="there is 1 rank; expected at least 2"):
        place_of({**TORCHRUNS, "WORLD_SIZE": "1"})


@pytest.mark.parametrize(
    ("gpus", "profile"),
    [(0, "PAR-CPU-MECHANISM"), (2, "PAR-CUDA-MECHANISM"), (8, "PAR-CUDA-MECHANISM")],
)
def test_a_run_is_on_gpus_where_each_rank_has_one_and_else_on_the_cpu(gpus, profile):
    assert profile_of(stand_in_for_torch(gpus), 2) == profile


def test_two_ranks_do_not_share_one_gpu():
    with pytest.raises(MachineError, match="1 GPU for 2 ranks; expected one for each, or none"):
        profile_of(stand_in_for_torch(1), 2)


def test_strategies_take_turns_at_being_first():
    ranks = Ranks(StandInForTorch(), TWO, device=None, group="gloo")
    asked = MechanismAsked(output=Path("result.json"), warmup=1, repeats=3)
    queues = {"a": ((2,), (1, 3)), "b": ((), (6,))}
    rounds = measured(ranks, CountsUnits(), queues, asked)
    assert [(one.strategy, one.units) for one in rounds] == [
        ("a", 4),
        ("b", 6),
        ("b", 6),
        ("a", 4),
        ("a", 4),
        ("b", 6),
    ]


def test_rounds_to_warm_up_are_worked_and_not_kept():
    ranks = Ranks(StandInForTorch(), TWO, device=None, group="gloo")
    asked = MechanismAsked(output=Path("result.json"), warmup=2, repeats=1)
    work = CountsUnits()
    rounds = measured(ranks, work, {"a": ((5,), (3,))}, asked)
    assert (len(rounds), work.made) == (1, 9)


TWO = Place(rank=1, local_rank=1, ranks=2, store_host="localhost", store_port=29500)


class StandInForTorch:
    """Every rank is always there."""

    distributed = SimpleNamespace(all_reduce=lambda token: None)

    def ones(self, count, device):
        return SimpleNamespace(item=lambda: 1.0)


class CountsUnits:
    made = 0

    def unit(self):
        self.made += 1

    def wait(self):
        pass
