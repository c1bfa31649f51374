"""Further recorded runs of the same requests on the same engine.

Runs of one engine differ by themselves, in one report by up to 21.8 % (sgl-project/sglang#38423):
an error smaller than that says nothing against the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np

from pointsman.calibrate.recording import Recording, Times
from pointsman.calibrate.setup import EngineSetup
from pointsman.core.errors import InputError, wrong_value
from pointsman.workload.workload import Longs

# A client may be late by so much of the run, beside the iteration that an arrival is known to.
_LATE_FRACTION = 0.01


def times_of_repeats(recording: Recording, repeats: Sequence[Recording]) -> list[Times]:
    """The times of the other runs, each with a row for each request of the recording, in its order.

    Raises InputError where a folder is given twice, or requests, arrivals or setup differ.
    """
    seen = {recording.folder.resolve()}
    for repeat in repeats:
        folder = repeat.folder.resolve()
        if folder in seen:
            raise InputError(
                f"{repeat.folder}: given twice, and a run is no repeat of itself; expected the"
                " folder of another one"
            )
        seen.add(folder)
    return [_times_of_repeat(recording, repeat) for repeat in repeats]


def _times_of_repeat(recording: Recording, repeat: Recording) -> Times:
    _check_setup(recording.setup, repeat)
    if len(repeat) != len(recording):
        wanted = f"{len(recording)}, as in {recording.folder}"
        raise wrong_value(str(repeat.folder), "the number of requests", len(repeat), wanted)
    ours, theirs = _by_lengths(recording), _by_lengths(repeat)
    _check_lengths(recording, repeat, ours, theirs)
    same = np.empty_like(theirs)
    same[ours] = theirs
    _check_arrivals(recording, repeat, same)
    return repeat.times.rows(same)


def _by_lengths(recording: Recording) -> Longs:
    """Rows by prompt, then output, then arrival: those that come close together may swap."""
    keys = (recording.times.arrival_ms, recording.output_tokens, recording.prompt_tokens)
    return np.lexsort(keys)


def _check_setup(setup: EngineSetup, repeat: Recording) -> None:
    for field in fields(setup):
        wanted, found = getattr(setup, field.name), getattr(repeat.setup, field.name)
        if found != wanted:
            raise wrong_value(
                str(repeat.folder),
                field.name,
                found,
                f"{wanted!r}, as in the run that it repeats: another setup is no noise",
            )


def _check_lengths(recording: Recording, repeat: Recording, ours: Longs, theirs: Longs) -> None:
    for name in ("prompt_tokens", "output_tokens"):
        wanted, found = getattr(recording, name)[ours], getattr(repeat, name)[theirs]
        wrong = np.flatnonzero(wanted != found)
        if wrong.size:
            k = int(wrong[0])
            raise InputError(
                f"{repeat.folder}: its requests are not those of {recording.folder}: sorted by"
                f" length, one has {name} {found[k]} where {wanted[k]} is expected; record the same"
                " requests again"
            )


def _check_arrivals(recording: Recording, repeat: Recording, same: Longs) -> None:
    """An arrival is known to an iteration, which is no longer than the longest prefill."""
    prefill_ms = max(
        float(np.max(run.times.first_token_ms - run.times.scheduled_ms))
        for run in (recording, repeat)
    )
    arrival_ms = recording.times.arrival_ms
    most_ms = prefill_ms + _LATE_FRACTION * float(arrival_ms[-1])
    off_ms = np.abs(repeat.times.arrival_ms[same] - arrival_ms)
    if off_ms.max() > most_ms:
        row = int(np.argmax(off_ms))
        raise InputError(
            f"{repeat.folder}: request {row + 1} in order of arrival came {off_ms[row]:,.0f} ms off"
            f" its time in {recording.folder}; expected at most {most_ms:,.0f} ms: send the same"
            " requests at the same times"
        )
