"""The rows of a measured repeat as a recording, in memory, that costs are fitted to.

    row.sent_ms   ->  arrival: what the client itself kept it waiting is no cost of the engine
    row.number    ->  the blocks of its prompt, as the workload has them

Rows of the warm-up are in it, for they load the engine; requests that did not end well are not, for
nobody knows what they cost it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pointsman.bench.client.rows import OK, Row
from pointsman.bench.prediction.limits import EngineLimits
from pointsman.bench.prediction.offered import Offered
from pointsman.calibrate.recording import Recording, Times
from pointsman.calibrate.setup import EngineSetup
from pointsman.core.errors import InputError, wrong_value
from pointsman.workload.workload import Workload, workload_of_columns

SENT = "sent by the client"


def recording_of(
    name: str, rows: Sequence[Row], offered: Offered, limits: EngineLimits
) -> Recording:
    """One repeat of one replica, which ``name`` names.

    Raises InputError where no request ended well, and where rows are of another workload.
    """
    for row in rows:
        check_row(name, row, offered.workload)
    served = sorted(filter(is_whole, rows), key=lambda row: (row.sent_ms, row.number))
    if not served:
        raise InputError(f"{name}: no request ended well; expected some, to fit costs to")
    sent, first, finish = (
        np.array([getattr(row, field) for row in served])
        for field in ("sent_ms", "first_token_ms", "last_token_ms")
    )
    workload = _same_requests(served, offered.workload)
    return Recording(
        folder=Path(name),
        setup=_setup(limits, offered.block_size),
        prompt_tokens=workload.prompt_tokens,
        times=Times(sent, sent, first, finish, workload.output_tokens),
        gauges=None,
        arrivals=SENT,
        workload=workload,
        closed_loop=offered.closed_loop,
    )


def is_whole(row: Row) -> bool:
    """Whether it ended well, at times that are known."""
    times = (row.sent_ms, row.first_token_ms, row.last_token_ms)
    return row.status == OK and None not in times and bool(row.output_tokens)


def check_row(name: str, row: Row, workload: Workload) -> None:
    """Refuse a row of another workload."""
    if not 0 <= row.number < len(workload):
        wanted = f"a row of the workload, 0..{len(workload) - 1}"
        raise wrong_value(f"rows of {name}", "number", row.number, wanted)
    asked = int(workload.prompt_tokens[row.number])
    if row.asked_prompt_tokens != asked:
        where = f"rows of {name}: request {row.number}"
        wanted = f"{asked}, as in the workload"
        raise wrong_value(where, "asked_prompt_tokens", row.asked_prompt_tokens, wanted)


def _setup(limits: EngineLimits, block_size: int) -> EngineSetup:
    return EngineSetup(
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        kv_blocks=limits.kv_blocks(block_size),
        block_size=block_size,
        async_scheduling=limits.async_scheduling,
        shares_late=limits.shares_late,
    )


def _same_requests(served: Sequence[Row], workload: Workload) -> Workload:
    """With the tokens that the server counted. No sessions: what the engine answered is not sent
    back to it, and each request comes when it came."""
    numbers = np.array([row.number for row in served])
    prompt = np.array([_prompt_tokens(row) for row in served])
    chains = [workload.chain(number) for number in numbers.tolist()]
    return workload_of_columns(
        np.array([row.sent_ms for row in served]),
        prompt_tokens=prompt,
        output_tokens=np.array([row.output_tokens for row in served]),
        chain_start=np.concatenate(([0], np.cumsum([chain.size for chain in chains]))),
        chain_blocks=np.concatenate(chains),
        prefix_tokens=np.minimum(workload.prefix_tokens[numbers], prompt),
        block_size_tokens=workload.block_size_tokens,
    )


def _prompt_tokens(row: Row) -> int:
    return row.asked_prompt_tokens if row.prompt_tokens is None else row.prompt_tokens
