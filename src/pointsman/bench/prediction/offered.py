"""What every group of an experiment is offered: the same requests, in the same way."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pointsman.bench.client.arrivals import ClosedLoop, Loop, OpenLoop
from pointsman.bench.client.load import Warmup
from pointsman.calibrate.setup import DEFAULT_BLOCK_SIZE
from pointsman.core.checks import check_seed
from pointsman.core.errors import wrong_value
from pointsman.metrics.goodput import Objectives
from pointsman.sim import conditions
from pointsman.workload.workload import MISSING, Workload

LEAST_REQUESTS = 5


@dataclass(frozen=True, slots=True)
class Offered:
    """The requests and how they are sent; ``seeds`` are of the simulated draws, one a repeat.

    ``workload_sha256`` as the evidence has it. ``objectives`` are told to policies that go by them;
    ``folder``: where files of policies are sought. Raises InputError where there is too little to
    fit to.
    """

    workload: Workload
    loop: Loop = field(default_factory=OpenLoop)
    warmup: Warmup = field(default_factory=Warmup)
    seeds: tuple[int, ...] = (0,)
    workload_sha256: str | None = None
    objectives: Objectives | None = None
    folder: Path = Path()

    def __post_init__(self) -> None:
        if len(self.workload) < LEAST_REQUESTS:
            wanted = f"at least {LEAST_REQUESTS}, to fit costs to"
            raise wrong_value("prediction", "requests", len(self.workload), wanted)
        if not self.seeds:
            raise wrong_value("prediction", "seeds", self.seeds, "at least one")
        for seed in self.seeds:
            check_seed("prediction", seed)

    @property
    def block_size(self) -> int:
        """Of the simulated cache: the trace's, for its chains say nothing of smaller blocks."""
        size = self.workload.block_size_tokens
        return size if self.workload.chain_blocks.size and size > 1 else DEFAULT_BLOCK_SIZE

    @property
    def closed_loop(self) -> conditions.ClosedLoop | None:
        """The simulator's; None for an open loop."""
        if not isinstance(self.loop, ClosedLoop):
            return None
        return conditions.ClosedLoop(self.loop.concurrency, self.loop.think_ms)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is simulated in another way than it is sent."""
        has_turns = bool((self.workload.session != MISSING).any())
        if isinstance(self.loop, ClosedLoop) and has_turns:
            return (
                "the client's users each take a conversation and wait for its answers; simulated"
                " are the requests in the order of the trace",
            )
        return ()
