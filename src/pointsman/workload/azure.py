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

from pointsman.core.errors import InputError, missing_field, unknown_name, wrong_value
from pointsman.workload.builder import Row, WorkloadBuilder
from pointsman.workload.reading import TOKENS_WANTED, NumberedLines, Reading
from pointsman.workload.workload import MAX_TOKENS

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
    return TIME.encode() in line.split(b",")


def read(lines: NumberedLines, reading: Reading) -> WorkloadBuilder:
    """The rows of an Azure trace. Times keep their 100 ns exactly until they become ms."""
    number, header = next(lines)
    parser = _Parser(_places(header, f"{reading.name} line {number}"))
    records: list[_Record] = []
    reading.collect(lines, parser.parse, lambda record, _: records.append(record))
    earliest_ns = min((record.time_ns for record in records), default=0)
    builder = WorkloadBuilder()
    for time_ns, prompt_tokens, output_tokens in records:
        arrival_ms = (time_ns - earliest_ns) / _NS_PER_MS
        builder.add(Row(arrival_ms, None, None, prompt_tokens, output_tokens), reading.name)
    return builder


def _places(header: bytes, where: str) -> tuple[int, int, int]:
    names = [name.strip() for name in header.decode("utf-8", "replace").split(",")]
    for name in names:
        if name not in COLUMNS:
            raise unknown_name(where, "column", name, COLUMNS)
    for name in COLUMNS:
        if names.count(name) != 1:
            raise missing_field(where, name, "it once in the header")
    return names.index(TIME), names.index(PROMPT), names.index(OUTPUT)


class _Parser:
    def __init__(self, places: tuple[int, int, int]) -> None:
        self._places = places
        self._day = b""
        self._day_ns = 0

    def parse(self, line: bytes, where: str) -> _Record:
        cells = line.split(b",")
        if len(cells) != len(COLUMNS):
            raise InputError(f"{where}: {len(cells)} columns; expected {len(COLUMNS)}")
        time, prompt, output = self._places
        return _Record(
            self._time_ns(cells[time].strip(), where),
            _tokens(PROMPT, cells[prompt].strip(), where),
            _tokens(OUTPUT, cells[output].strip(), where),
        )

    def _time_ns(self, text: bytes, where: str) -> int:
        found = _TIMESTAMP.fullmatch(text)
        if found is None:
            raise wrong_value(where, TIME, _shown(text), TIMESTAMP_WANTED)
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
        raise wrong_value(where, TIME, _shown(day), TIMESTAMP_WANTED) from None


def _tokens(name: str, text: bytes, where: str) -> int:
    # Longer texts are no token counts, and int() of them would take long.
    if not text.isdigit() or len(text) > 12 or int(text) > MAX_TOKENS:
        raise wrong_value(where, name, _shown(text), TOKENS_WANTED)
    return int(text)


def _shown(text: bytes) -> str:
    return text.decode("utf-8", "replace")
