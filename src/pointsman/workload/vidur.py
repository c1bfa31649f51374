"""Vidur's traces: CSV; ``arrived_at`` in s, lengths in tokens.

    arrived_at,num_prefill_tokens,num_decode_tokens
    0.052,3180,8

Some of Vidur's files hold lengths alone, without ``arrived_at``, and are refused. Source:
microsoft/vidur ``data/processed_traces``. NetX-lab/Frontier adds ``session_id`` and
``block_hash_ids`` to the columns, which are refused too: they do not say how many tokens a block
has.
"""

from __future__ import annotations

from pointsman.core.errors import InputError
from pointsman.workload.builder import Row, WorkloadBuilder
from pointsman.workload.csv_columns import Columns, has_column, time_in, tokens_in
from pointsman.workload.reading import NumberedLines, Reading
from pointsman.workload.units import check_span, ms_per_unit

TIME, PROMPT, OUTPUT = "arrived_at", "num_prefill_tokens", "num_decode_tokens"
UNUSED = ("num_total_tokens", "pd_ratio")
FRONTIER = ("session_id", "block_hash_ids")
UNIT = "s"


def is_header(line: bytes) -> bool:
    """Whether a line is the header of such a file."""
    return has_column(line, PROMPT)


def read(lines: NumberedLines, reading: Reading) -> WorkloadBuilder:
    """The rows of a Vidur trace. A span that is implausible in s is refused, naming it."""
    number, header = next(lines)
    where = f"{reading.name} line {number}"
    _check_header(header, where)
    columns = Columns(header, where, (TIME, PROMPT, OUTPUT), UNUSED)
    builder = WorkloadBuilder()
    parser = _Parser(columns, ms_per_unit(reading.options, UNIT))
    reading.collect(lines, parser.parse, builder.add)
    check_span(builder, reading, TIME, UNIT)
    return builder


def _check_header(header: bytes, where: str) -> None:
    if has_column(header, PROMPT) and not has_column(header, TIME):
        raise InputError(
            f"{where}: {TIME} is missing, so this file has lengths and no arrivals;"
            f" expected a column {TIME} with times in s: add one"
        )
    for name in FRONTIER:
        if has_column(header, name):
            raise InputError(
                f"{where}: column {name!r} is Frontier's and not read; expected Vidur's columns:"
                " leave it out, or write the file in Pointsman's format with a block size"
            )


class _Parser:
    def __init__(self, columns: Columns, ms_per_unit: float) -> None:
        self._columns = columns
        self._ms_per_unit = ms_per_unit
        self._places = columns.places((TIME, PROMPT, OUTPUT))

    def parse(self, line: bytes, where: str) -> Row:
        cells = self._columns.cells(line, where)
        time, prompt, output = (cells[place] for place in self._places)
        return Row(
            time_in(time, TIME, where, self._ms_per_unit),
            prompt_tokens=tokens_in(prompt, PROMPT, where),
            output_tokens=tokens_in(output, OUTPUT, where),
        )
