"""What the ranks measured, or why they did not, as the file of the run."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from statistics import fmean
from typing import Any

from pointsman.bench.mechanism.asked import MechanismAsked
from pointsman.bench.mechanism.hardware import hardware_of
from pointsman.bench.mechanism.ranks import Round
from pointsman.bench.mechanism.result import LEVELS, ON_GPUS, PROJECT, Profile
from pointsman.bench.mechanism.routing import REQUEST_COSTS, STRATEGIES
from pointsman.evidence.envelope import Failure, MechanismRun
from pointsman.evidence.mechanism_run import (
    MechanismMetrics,
    MechanismRepeat,
    MechanismWorkload,
    StrategyRow,
)

_DIGITS = 5  # of a millisecond: 10 ns
RETRY = (
    "mend the reason and run it again under another --run-label and --output: this file stays as"
    " it is"
)


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What is known of a run before anything was measured."""

    torch: Any
    asked: MechanismAsked
    ranks: int
    profile: Profile

    def failed(self, stage: str, reason: str) -> MechanismRun:
        """The file of a run that came to nothing."""
        failure = Failure(stage=stage, reason=reason, retry=RETRY)
        return self._run(MechanismMetrics(rows=()), failure)

    def succeeded(self, rounds: Sequence[Sequence[Round]]) -> MechanismRun:
        """The file of a run; ``rounds`` are those of each rank, as they were run."""
        rows = tuple(_row(strategy, rounds) for strategy in STRATEGIES)
        return self._run(MechanismMetrics(rows=rows), None)

    def _run(self, metrics: MechanismMetrics, failure: Failure | None) -> MechanismRun:
        asked = self.asked
        return MechanismRun(
            schema="pointsman.evidence/1",
            project=PROJECT,
            label=asked.run_label,
            environment_profile=self.profile,
            workload=MechanismWorkload(
                id=asked.workload_id,
                mode=asked.mode,
                request_cost_units=REQUEST_COSTS,
                compute_dim=asked.compute_dim,
                dtype=asked.dtype,
                world_size=self.ranks,
                warmup=asked.warmup,
                repeats=asked.repeats,
            ),
            hardware=hardware_of(self.torch, self.profile),
            metrics=metrics,
            versions=_versions(self.torch, self.profile),
            evidence_level=LEVELS[self.profile],
            failure=failure,
            decision=None,  # a verdict stands beside the file, never in it
        )


def _row(strategy: str, rounds: Sequence[Sequence[Round]]) -> StrategyRow:
    positions = [i for i, one in enumerate(rounds[0]) if one.strategy == strategy]
    repeats = tuple(_repeat([of[position] for of in rounds]) for position in positions)
    mean_ms = tuple(
        round(fmean(repeat.rank_elapsed_ms[rank] for repeat in repeats), _DIGITS)
        for rank in range(len(rounds))
    )
    makespan_ms = max(mean_ms)
    return StrategyRow(
        strategy=strategy,
        request_cost_units_per_rank=tuple(of[positions[0]].units for of in rounds),
        rank_elapsed_ms=mean_ms,
        max_rank_makespan_ms=makespan_ms,
        throughput_requests_per_s_proxy=round(len(REQUEST_COSTS) / makespan_ms * 1e3, _DIGITS),
        repeats=repeats,
    )


def _repeat(by_rank: Sequence[Round]) -> MechanismRepeat:
    elapsed_ms = tuple(round(one.elapsed_ms, _DIGITS) for one in by_rank)
    return MechanismRepeat(rank_elapsed_ms=elapsed_ms, max_rank_makespan_ms=max(elapsed_ms))


def _versions(torch: Any, profile: Profile) -> dict[str, str]:
    known = {
        "pointsman": version("pointsman"),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }
    if profile != ON_GPUS:
        return {**known, "gloo": f"of torch {torch.__version__}"}
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    return {**known, "cuda": str(torch.version.cuda), "nccl": nccl}
