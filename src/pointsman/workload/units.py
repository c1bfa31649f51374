"""In which unit a trace's times are, and the refusal of a unit that the times speak against.

Replaying ms as seconds makes a trace a thousand times slower, and no number shows it.
"""

from __future__ import annotations

from pointsman.core.errors import InputError
from pointsman.workload.builder import WorkloadBuilder
from pointsman.workload.reading import Reading, ReadOptions

MS_PER_UNIT = {"ms": 1.0, "s": 1000.0}

# Beyond one request a minute or 1,000 a second, another unit is likelier than such traffic.
_SLOWEST_GAP_MS = 60_000.0
_FASTEST_GAP_MS = 1.0
_JUDGED_FROM_ROWS = 100


def ms_per_unit(options: ReadOptions, stated: str) -> float:
    """How many ms the unit has that was asked for, else the one that the layout states."""
    return MS_PER_UNIT[options.time_unit or stated]


def check_span(builder: WorkloadBuilder, reading: Reading, column: str, stated: str) -> None:
    """Refuse a span that is implausible in a unit which nobody confirmed, naming it.

    ``stated`` is the layout's unit: s where that is ms is refused even if asked for.
    """
    asked = reading.options.time_unit
    if builder.rows < _JUDGED_FROM_ROWS or asked == stated == "s":
        return
    span_ms = builder.span_ms
    gap_ms = span_ms / (builder.rows - 1)
    if (asked or stated) == "s" and gap_ms > _SLOWEST_GAP_MS:
        wanted = "--time-unit s or ms to say what it is"
        if stated == "ms":
            wanted = "ms, the unit of this layout"
        raise InputError(
            f"{reading.name}: {column} spans {span_ms / 86_400_000:.1f} days when read as s,"
            f" one request in {gap_ms / 1000:.0f} s; expected {wanted}"
        )
    if asked is None and stated == "ms" and 0 < gap_ms < _FASTEST_GAP_MS:
        raise InputError(
            f"{reading.name}: {column} spans {span_ms:g} ms when read as ms, the unit of this"
            f" layout: {1000 / gap_ms:.0f} requests a second;"
            " expected --time-unit s or ms to say what it is"
        )
