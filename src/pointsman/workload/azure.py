"""Traces of Azure's LLM inference: CSV; times as text without a zone, lengths in tokens.

    TIMESTAMP,ContextTokens,GeneratedTokens
    2023-11-16 18:15:46.6805900,374,44

Only differences of the times are used: the earliest request arrives at 0 ms. There is no prefix
information. Source: Azure/AzurePublicDataset ``AzureLLMInferenceDataset2023.md``; files of 2024
write an offset from UTC behind the time, which is applied.
"""

from __future__ import annotations

import re
from datetime import date
from typing import NamedTuple

from pointsman.core.errors import wrong_value
from pointsman.workload.builder import Row, WorkloadBuilder
from pointsman.workload.csv_columns import Columns, has_column, text_in, tokens_in
from pointsman.workload.reading import NumberedLines, Reading

TIME, PROMPT, OUTPUT = "TIMESTAMP", "ContextTokens", "GeneratedTokens"
COLUMNS = (TIME, PROMPT, OUTPUT)
TIMESTAMP_WANTED = "a time such as 2023-11-16 18:15:46.6805900"

_TIMESTAMP = re.compile(
    rb"(\d{4}-\d\d-\d\d)[ T]([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d{1,9}))?"
    rb"(?:Z|([+-])(\d\d):?(\d\d))?"
)
_NS_PER_MS = 1_000_000


class _Record(NamedTuple):
    time_ns: int
    prompt_tokens: int
    output_tokens: int


def is_header(line: bytes) -> bool:
    """Whether a line is the header of such a file."""
    return has_column(line, TIME)


def read(lines: NumberedLines, reading: Reading) -> WorkloadBuilder:
    """The rows of an Azure trace. Times keep their 100 ns exactly until they become ms."""
    number, header = next(lines)
    parser = _Parser(Columns(header, f"{reading.name} line {number}", COLUMNS))
    records: list[_Record] = []
    reading.collect(lines, parser.parse, lambda record, _: records.append(record))
    earliest_ns = min((record.time_ns for record in records), default=0)
    builder = WorkloadBuilder()
    for time_ns, prompt_tokens, output_tokens in records:
        arrival_ms = (time_ns - earliest_ns) / _NS_PER_MS
        builder.add(Row(arrival_ms, None, None, prompt_tokens, output_tokens), reading.name)
    return builder


class _Parser:
    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._places = columns.places(COLUMNS)
        self._day = b""
        self._day_ns = 0

    def parse(self, line: bytes, where: str) -> _Record:
        cells = self._columns.cells(line, where)
        time, prompt, output = (cells[place] for place in self._places)
        return _Record(
            self._time_ns(time, where),
            tokens_in(prompt, PROMPT, where),
            tokens_in(output, OUTPUT, where),
        )

    def _time_ns(self, text: bytes, where: str) -> int:
        found = _TIMESTAMP.fullmatch(text)
        if found is None:
            raise wrong_value(where, TIME, text_in(text), TIMESTAMP_WANTED)
        day, hours, minutes, seconds, fraction, sign, zone_hours, zone_minutes = found.groups()
        if day != self._day:
            self._day_ns = _day_ns(day, where)
            self._day = day
        time_s = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
        if sign:
            offset_s = int(zone_hours) * 3600 + int(zone_minutes) * 60
            time_s += offset_s if sign == b"-" else -offset_s
        return self._day_ns + time_s * 1_000_000_000 + int((fraction or b"0").ljust(9, b"0"))


def _day_ns(day: bytes, where: str) -> int:
    try:
        return date.fromisoformat(day.decode()).toordinal() * 86_400_000_000_000
    except ValueError:
        raise wrong_value(where, TIME, text_in(day), TIMESTAMP_WANTED) from None
