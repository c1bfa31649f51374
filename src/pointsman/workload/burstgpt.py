"""BurstGPT's traces: CSV; ``Timestamp`` in s since the first day's midnight, lengths in tokens.

    Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
    19440110.0,1722ac82,43,GPT-4,906,446,1352,Conversation log

The older files lack ``Session ID`` and ``Elapsed time``, and calls of the API have no session.
``Elapsed time`` is that of the whole response on the servers of the time and no service time
here; it, ``Model``, ``Total tokens`` and ``Log Type`` are not used, and rows of all models stay.
A row with 0 response tokens is a request that failed. Source: HPMLL/BurstGPT ``README.md``.
"""

from __future__ import annotations

from pointsman.workload.builder import Row, WorkloadBuilder
from pointsman.workload.csv_columns import Columns, has_column, text_in, time_in, tokens_in
from pointsman.workload.reading import NumberedLines, Reading, WholeFileError
from pointsman.workload.units import MS_PER_UNIT

TIME, PROMPT, OUTPUT = "Timestamp", "Request tokens", "Response tokens"
SESSION = "Session ID"
UNUSED = ("Elapsed time", "Model", "Total tokens", "Log Type")


def is_header(line: bytes) -> bool:
    """Whether a line is the header of such a file."""
    return has_column(line, PROMPT)


def read(lines: NumberedLines, reading: Reading) -> WorkloadBuilder:
    """The rows of a BurstGPT trace; ``failed_requests`` says what becomes of failures."""
    number, header = next(lines)
    columns = Columns(
        header, f"{reading.name} line {number}", (TIME, PROMPT, OUTPUT), (SESSION, *UNUSED)
    )
    builder = WorkloadBuilder()
    reading.collect(lines, _Parser(columns, reading).parse, builder.add)
    return builder


class _Parser:
    def __init__(self, columns: Columns, reading: Reading) -> None:
        self._columns = columns
        self._reading = reading
        self._places = columns.places((TIME, PROMPT, OUTPUT))
        self._session = columns.place(SESSION)

    def parse(self, line: bytes, where: str) -> Row | None:
        cells = self._columns.cells(line, where)
        time, prompt, output = (cells[place] for place in self._places)
        row = Row(
            time_in(time, TIME, where, MS_PER_UNIT["s"]),
            prompt_tokens=tokens_in(prompt, PROMPT, where),
            output_tokens=tokens_in(output, OUTPUT, where),
            session=None if self._session is None else text_in(cells[self._session]) or None,
        )
        return row if row.output_tokens else self._failed(row, where)

    def _failed(self, row: Row, where: str) -> Row | None:
        choice = self._reading.options.failed_requests
        if choice is None:
            raise WholeFileError(
                f"{where}: {OUTPUT} is 0, a request that failed; expected --failed-requests"
                " keep (with no output) or omit (failed_requests in Python)"
            )
        if choice == "keep":
            return row
        self._reading.failures_left_out += 1
        return None
