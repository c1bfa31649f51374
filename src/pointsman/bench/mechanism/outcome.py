"""What the ranks measured, or why they did not, as the file of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from statistics import fmean
from typing import Any

from pointsman.bench.mechanism.asked import MechanismAsked
from pointsman.bench.mechanism.ranks import SEED, Ranks, Round
from pointsman.bench.mechanism.result import (
    DEFINITIONS,
    LEVELS,
    ON_GPUS,
    MechanismFailure,
    MechanismHardware,
    MechanismMetrics,
    MechanismResult,
    MechanismRow,
    MechanismWorkload,
    Repeat,
)
from pointsman.bench.mechanism.routing import REQUEST_COSTS, STRATEGIES

_DIGITS = 5  # of a millisecond: 10 ns


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What is known of a run before anything was measured."""

    asked: MechanismAsked
    ranks: int
    profile: str

    def workload(self) -> MechanismWorkload:
        """What it computes."""
        dim = self.asked.compute_dim
        return MechanismWorkload(
            workload_id=self.asked.workload_id,
            run_label=self.asked.run_label,
            mode=self.asked.mode,
            request_costs=REQUEST_COSTS,
            cost_unit=f"one product of two {dim} x {dim} matrices",
            compute_dim=dim,
            dtype=self.asked.dtype,
            warmup=self.asked.warmup,
            repeats=self.asked.repeats,
            world_size=self.ranks,
            seed=SEED,
        )

    def result(
        self,
        hardware: MechanismHardware,
        metrics: MechanismMetrics,
        failure: MechanismFailure | None = None,
    ) -> MechanismResult:
        """The file with these parts."""
        return MechanismResult(
            pointsman=version("pointsman"),
            workload=self.workload(),
            hardware=hardware,
            environment_profile=self.profile,
            metrics=metrics,
            definitions=DEFINITIONS,
            evidence_level=LEVELS[self.profile],
            failure=failure,
        )


def failed(facts: RunFacts, stage: str, reason: str) -> MechanismResult:
    """The file of a run that came to nothing."""
    failure = MechanismFailure(
        stage=stage,
        reason=reason,
        retry="mend the reason and run it again under another --run-label and --output; this file"
        " stays as it is",
    )
    group = "nccl" if facts.profile == ON_GPUS else "gloo"
    hardware = MechanismHardware(process_group=group, world_size=facts.ranks)
    return facts.result(hardware, MechanismMetrics(), failure)


def succeeded(
    facts: RunFacts, ranks: Ranks, devices: Sequence[str], rounds: Sequence[Sequence[Round]]
) -> MechanismResult:
    """The file of a run; ``rounds`` are those of each rank, as they were run."""
    rows = tuple(_row(strategy, rounds) for strategy in STRATEGIES)
    return facts.result(_hardware(ranks, tuple(devices)), MechanismMetrics(rows=rows))


def _row(strategy: str, rounds: Sequence[Sequence[Round]]) -> MechanismRow:
    positions = [i for i, one in enumerate(rounds[0]) if one.strategy == strategy]
    repeats = tuple(_repeat(position, [of[position] for of in rounds]) for position in positions)
    mean_ms = tuple(
        round(fmean(repeat.rank_elapsed_ms[rank] for repeat in repeats), _DIGITS)
        for rank in range(len(rounds))
    )
    makespan_ms = max(mean_ms)
    return MechanismRow(
        strategy=strategy,
        request_cost_units_per_rank=tuple(of[positions[0]].units for of in rounds),
        rank_elapsed_ms=mean_ms,
        max_rank_makespan_ms=makespan_ms,
        throughput_requests_per_s_proxy=round(len(REQUEST_COSTS) / makespan_ms * 1e3, _DIGITS),
        policy=STRATEGIES[strategy],
        repeats=repeats,
    )


def _repeat(position: int, by_rank: Sequence[Round]) -> Repeat:
    elapsed_ms = tuple(round(one.elapsed_ms, _DIGITS) for one in by_rank)
    return Repeat(position=position, rank_elapsed_ms=elapsed_ms, makespan_ms=max(elapsed_ms))


def _hardware(ranks: Ranks, devices: tuple[str, ...]) -> MechanismHardware:
    torch: Any = ranks.torch
    on_gpus = ranks.device.type == "cuda"
    return MechanismHardware(
        process_group=ranks.group,
        world_size=ranks.place.ranks,
        devices=devices,
        threads_per_rank=torch.get_num_threads(),
        torch=str(torch.__version__),
        cuda=torch.version.cuda if on_gpus else None,
        nccl=".".join(map(str, torch.cuda.nccl.version())) if on_gpus else None,
    )
