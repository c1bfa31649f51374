"""What a mechanism run reports: fixed costs dealt to ranks, and how long the slowest took.

Source: the lesson on serving replica routing, step 5.
"""

from __future__ import annotations

import msgspec

from pointsman.evidence.metrics import Amount, AtLeastOne, Count


class MechanismWorkload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The costs, and what one unit of them is."""

    id: str
    mode: str
    request_cost_units: tuple[Amount, ...]
    compute_dim: AtLeastOne  # one unit is one product of square matrices of that size
    dtype: str
    world_size: AtLeastOne
    warmup: Count
    repeats: AtLeastOne


class MechanismRepeat(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One timed round of one strategy."""

    rank_elapsed_ms: tuple[Amount, ...]
    max_rank_makespan_ms: Amount


class StrategyRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One strategy; times are means over its repeats, each of which is kept."""

    strategy: str
    request_cost_units_per_rank: tuple[Amount, ...]
    rank_elapsed_ms: tuple[Amount, ...]
    max_rank_makespan_ms: Amount
    throughput_requests_per_s_proxy: Amount
    repeats: tuple[MechanismRepeat, ...]


class MechanismMetrics(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row a strategy; none where the run failed."""

    rows: tuple[StrategyRow, ...]
