"""How a trace is read: the options, the refusal of bad lines, and JSON errors in our words."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import msgspec

from pointsman.core.errors import InputError, missing_field, unknown_name, wrong_value
from pointsman.workload.builder import WorkloadBuilder
from pointsman.workload.workload import MAX_TIME_MS, MAX_TOKENS

Tokens = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]
TimeMs = Annotated[float, msgspec.Meta(ge=0, le=MAX_TIME_MS)]
BlockId = Annotated[int, msgspec.Meta(ge=0)]
TOKENS_WANTED = f"an integer in 0..{MAX_TOKENS}"
TIME_WANTED = "a time in ms in 0..1e15"
ID_WANTED = "a string or an integer"
BLOCK_ID_WANTED = "an integer >= 0"

# Of longer lines a message does not show the value: Python's objects take many times its bytes.
_EXPLAINED_BYTES = 1 << 22

T = TypeVar("T")
NumberedLines = Iterator[tuple[int, bytes]]


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How to read a trace; the defaults take the file as it is.

    ``format``             a name of ``formats.FORMATS``; None: recognised by content
    ``skip_bad``           leave bad lines out and count them, instead of stopping at the first
    ``limit``              only the first so many requests of the file
    ``block_size_tokens``  tokens a block id stands for; None: what the file or format states
    ``time_unit``          of the times, ms or s; None: the unit that the layout states
    ``failed_requests``    of a BurstGPT trace: keep (with no output) or omit them; None: refuse
    ``spread_seed``        spread arrivals inside the trace's step of time, drawn from this seed
    ``on_bytes``           called with the number of bytes of the file read since the last call
    """

    format: str | None = None
    skip_bad: bool = False
    limit: int | None = None
    block_size_tokens: int | None = None
    time_unit: str | None = None
    failed_requests: str | None = None
    spread_seed: int | None = None
    on_bytes: Callable[[int], None] | None = None

    def __post_init__(self) -> None:
        for name, least in (("limit", 1), ("block_size_tokens", 1), ("spread_seed", 0)):
            value = getattr(self, name)
            if value is not None and not least <= value <= MAX_TOKENS:
                raise wrong_value("reading", name, value, f"an integer in {least}..{MAX_TOKENS}")
        if self.time_unit not in (None, "ms", "s"):
            raise wrong_value("reading", "time_unit", self.time_unit, "ms or s")
        if self.failed_requests not in (None, "keep", "omit"):
            raise wrong_value("reading", "failed_requests", self.failed_requests, "keep or omit")


class WholeFileError(InputError):
    """The file as a whole cannot be read so; leaving lines out would not help."""


class Reading:
    """One reading under way: the file's name, the options, how much was left out, and on which
    lines the kept rows stood (``Source.lines``)."""

    def __init__(self, name: str, options: ReadOptions) -> None:
        self.name = name
        self.options = options
        self.skipped_lines = 0
        self.failures_left_out = 0
        self.lines: list[tuple[int, int]] = []

    def collect(
        self,
        lines: Iterable[tuple[int, bytes]],
        parse: Callable[[bytes, str], T | None],
        keep: Callable[[T, str], None],
    ) -> None:
        """Parse and keep each line up to the limit; None is a row that the options leave out.

        A line that raises InputError stops the reading, or is counted where ``skip_bad`` is set.
        """
        most = math.inf if self.options.limit is None else self.options.limit
        kept, last = 0, -1
        for number, line in lines:
            where = f"{self.name} line {number}"
            try:
                row = parse(line, where)
                if row is None:
                    continue
                keep(row, where)
            except WholeFileError:
                raise
            except InputError:
                if not self.options.skip_bad:
                    raise
                self.skipped_lines += 1
                continue
            if number != last + 1:
                self.lines.append((kept, number))
            kept, last = kept + 1, number
            if kept >= most:
                return


Reader = Callable[[NumberedLines, Reading], WorkloadBuilder]


class JsonLine:
    """Decodes lines of one JSON object each into a struct, and says in our words what is wrong.

    ``wanted`` maps each key to what it must be, and ``key[]`` to what the items of a list must be;
    its keys are the known ones.
    """

    def __init__(self, struct: type[Any], wanted: Mapping[str, str]) -> None:
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(struct)
        self._wanted = wanted

    def decode(self, line: bytes, where: str) -> Any:
        """The struct. Raises InputError in the shape ``where: key is value; expected wanted``."""
        try:
            return self._decoder.decode(line)
        except msgspec.ValidationError as error:
            raise self._refusal(str(error), line, where) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise self._not_json(str(error), line, where) from None

    def _refusal(self, reason: str, line: bytes, where: str) -> InputError:
        if found := re.search(r"unknown field `(.*)`", reason, re.DOTALL):
            known = [key for key in self._wanted if not key.endswith("[]")]
            return unknown_name(where, "key", found[1], known)
        if found := re.search(r"missing required field `(.*)`", reason):
            return missing_field(where, found[1], self._wanted[found[1]])
        path = re.search(r"at `\$\.(\w+)(?:\[(\d+)\])?`", reason)
        if path is None:
            return InputError(f"{where}: the line is no JSON object; expected one object a line")
        key, place = path[1], path[2]
        name = key if place is None else f"{key}[{place}]"
        wanted = self._wanted[key if place is None else f"{key}[]"]
        try:
            value = _loaded(line)[key]
            value = value if place is None else value[int(place)]
        except (ValueError, RecursionError):
            return InputError(f"{where}: {name} cannot be read; expected {wanted}")
        return wrong_value(where, name, value, wanted)

    def _not_json(self, reason: str, line: bytes, where: str) -> InputError:
        try:
            # Python's parser takes NaN and Infinity, which JSON does not have.
            values = _loaded(line)
        except (ValueError, RecursionError):
            values = None
        for key, value in values.items() if isinstance(values, dict) else ():
            if isinstance(value, float) and not math.isfinite(value):
                return wrong_value(where, key, value, self._wanted.get(key, "valid JSON"))
        return InputError(f"{where}: not JSON ({reason}); expected one JSON object a line")


def _loaded(line: bytes) -> Any:
    if len(line) > _EXPLAINED_BYTES:
        raise ValueError("too long to be looked into")
    return json.loads(line)


def time_ms(time: float, ms_per_unit: float, name: str, where: str) -> float:
    """A time in ms. Raises InputError where it is beyond 1e15 ms."""
    found_ms = time * ms_per_unit
    if found_ms > MAX_TIME_MS:
        raise wrong_value(where, name, time, f"a time of at most {MAX_TIME_MS / ms_per_unit:g}")
    return found_ms


def whole_blocks(
    ids: Sequence[T], prompt_tokens: int | None, block_size_tokens: int
) -> Sequence[T]:
    """The ids of the blocks that the prompt fills; a last one that it fills in part is dropped.

    An engine caches whole blocks only, and traces list the partial one too:
    ``len(hash_ids) = ceil(input_length / block)`` (kvcache-ai/Mooncake ``FAST25-release/traces``).
    """
    if prompt_tokens is None:
        return ids
    return ids[: prompt_tokens // block_size_tokens]
