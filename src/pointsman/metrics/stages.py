"""Where the time of a request goes: the mean of each stage, of finished requests.

    arrival ─ queue wait ─ prefill ─ first token ─ decode ─ last token
    prefill and decode apart:  ... prefill ─ hand-off ─ decode wait ─ first token ...

The same names as of measured requests (``evidence/envelope.py``: ``STAGE_NAMES``).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pointsman.metrics.latency import Answers, spread_of
from pointsman.workload.workload import Floats


@dataclass(frozen=True, slots=True)
class MeanStages:
    """Means in ms, which add up to the mean E2E; all None where not every finished request has
    every stage.

    ``decode_wait_ms`` is all that the decode replica takes to the first token, hand-off apart: the
    wait for a seat and the step that brings it. It and ``handoff_ms`` are None too where prefill
    and decode are not apart.
    """

    queue_wait_ms: float | None = None
    prefill_ms: float | None = None
    handoff_ms: float | None = None
    decode_wait_ms: float | None = None
    decode_ms: float | None = None


def mean_stages(answers: Answers) -> MeanStages:
    """The means of the columns between the instants that are known of each request."""
    begun_ms, first_ms = answers.scheduled_ms, answers.first_token_ms
    columns = {
        "queue_wait_ms": answers.queue_wait_ms,
        "prefill_ms": first_ms - begun_ms,
        "decode_ms": answers.finish_ms - first_ms,
    }
    if answers.handoff_ms is not None:
        if answers.prefilled_ms is None:
            return MeanStages()
        columns |= {
            "prefill_ms": answers.prefilled_ms - begun_ms,
            "handoff_ms": answers.handoff_ms,
            "decode_wait_ms": first_ms - answers.prefilled_ms - answers.handoff_ms,
        }
    means = {name: _mean(column, answers) for name, column in columns.items()}
    return MeanStages(**means) if None not in means.values() else MeanStages()


def _mean(column: Floats, answers: Answers) -> float | None:
    """None where a finished request lacks it."""
    spread = spread_of(answers.of_finished(column))
    return spread.mean if spread.count == np.count_nonzero(answers.finished) else None
