"""A decision log as a workload: your own traffic, to simulate and compare with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from pointsman.core.errors import InputError
from pointsman.dispatch.log_file import Log, read_log
from pointsman.dispatch.record import NO_USAGE, RETRIED, Choice, Unplaced, Usage
from pointsman.workload.builder import Row, WorkloadBuilder
from pointsman.workload.workload import MAX_TOKENS, Source, Workload

FORMAT = "decision_log"

_PIECE_BYTES = 1 << 20


def workload_of_log(path: Path, *more: Path) -> Workload:
    """``workload_of`` the log in these files. Raises InputError as ``read_log`` does too."""
    return workload_of(read_log(path, *more))


def workload_of(log: Log) -> Workload:
    """The requests of a log, whatever became of them, in the order of their arrival.

    An arrival is the instant of the choice, of the last one where there were several, less the time
    for which it waited in the router before. Those that got no replica count too. Tokens are the
    engine's where it gave usage, else the router's estimates; ``source.format`` says of how
    many requests. Blocks of a prompt are of the size that the engine's counts imply for this
    traffic. Requests whose text was not read and that got no usage are left out and counted in
    ``source.skipped_lines``.
    Raises InputError where none is left.
    """
    builder = WorkloadBuilder(block_size_tokens=block_size_of(log))
    names: set[str] = set()
    skipped = estimated = 0
    for place, choice in _last_of_each(log):
        usage = _usage_of(log, choice)
        if usage.prompt_tokens is None and choice.prompt_tokens is None:
            skipped += 1
            continue
        estimated += usage.prompt_tokens is None or usage.output_tokens is None
        row = _row(choice, usage, _unused(choice, names, place), builder.block_size_tokens)
        builder.add(row, f"{log.path} {place}")
    if not builder.rows:
        raise InputError(f"{log.path}: no request has a prompt; expected at least one")
    kind = f"{FORMAT}; tokens of {estimated} of {builder.rows} requests are estimates"
    return builder.build(Source(_name_of(log), kind, _sha256_of(log), skipped_lines=skipped))


def _name_of(log: Log) -> str:
    further = len(log.further_paths)
    return f"{log.path} and {further} more of its files" if further else str(log.path)


def _sha256_of(log: Log) -> str:
    """Of all files, one after the other."""
    digest = hashlib.sha256()
    for path in log.paths:
        with open(path, "rb") as file:
            while piece := file.read(_PIECE_BYTES):
                digest.update(piece)
    return digest.hexdigest()


def _last_of_each(log: Log) -> Iterator[tuple[str, Choice | Unplaced]]:
    """What became of each request in the end, with a name of its place in the log."""
    for choice in log.choices:
        if not _was_retried(log, choice):  # else the same request comes again
            yield f"choice {choice.sequence}", choice
    for number, unplaced in enumerate(log.unplaced):
        yield f"unplaced {number}", unplaced


def block_size_of(log: Log) -> int:
    """Tokens a block of the log's chains: as estimated, corrected by what the engines counted."""
    estimated = counted = 0
    for choice in log.choices:
        usage = _usage_of(log, choice)
        if choice.prompt_tokens and usage.prompt_tokens:
            estimated += choice.prompt_tokens
            counted += usage.prompt_tokens
    if not estimated:
        return log.head.block_tokens
    return min(MAX_TOKENS, max(1, round(log.head.block_tokens * counted / estimated)))


def _usage_of(log: Log, choice: Choice | Unplaced) -> Usage:
    if isinstance(choice, Unplaced):
        return NO_USAGE
    outcome = log.outcomes.get(choice.sequence)
    return NO_USAGE if outcome is None else outcome.usage


def _was_retried(log: Log, choice: Choice) -> bool:
    outcome = log.outcomes.get(choice.sequence)
    return outcome is not None and outcome.status == RETRIED


def _row(choice: Choice | Unplaced, usage: Usage, name: str, block_tokens: int) -> Row:
    prompt_tokens = _known(usage.prompt_tokens, choice.prompt_tokens or 0)
    # A block that would lie beyond the prompt could be found cached there.
    chain = choice.block_hashes[: prompt_tokens // block_tokens]
    return Row(
        arrival_ms=max(0.0, choice.time_ms - choice.waited_ms),
        request_id=name,
        prompt_tokens=prompt_tokens,
        output_tokens=_output_tokens(choice, usage),
        session=choice.session,
        chain=chain,
        prefix_tokens=len(chain) * block_tokens,
    )


def _output_tokens(choice: Choice | Unplaced, usage: Usage) -> int:
    # Where a path is not read, an engine that counts no output has none: embeddings.
    return _known(usage.output_tokens, 0 if choice.prompt_tokens is None else choice.output_tokens)


def _known(count: int | None, estimate: int) -> int:
    return estimate if count is None else count


def _unused(choice: Choice | Unplaced, names: set[str], place: str) -> str:
    """A name of its own: clients may use an id twice, a workload may not."""
    name = choice.request_id
    if name in names:
        name = f"{name}#{place.removeprefix('choice ')}"
    names.add(name)
    return name
