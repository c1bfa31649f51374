"""What a run asked of each recorded engine, held against what its costs were fitted to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

import numpy as np

from pointsman.costs.calibrated import RunFigures, figures_of, outside_range
from pointsman.fleet.description import FleetDescription
from pointsman.fleet.groups import Recorded
from pointsman.metrics.concurrency import most_at_once
from pointsman.sim.batching import FleetRun


def asked_of_groups(run: FleetRun, fleet: FleetDescription) -> tuple[RunFigures, ...]:
    """The most that the run asked of one replica of each group, by ``fleet.ordered``.

    A range is of all cores of the recorded engine together, a replica is one of them: what is
    asked counts as often as there were cores.
    """
    figures, first = [], 0
    for group in fleet.ordered:
        cores, version = 1, None
        if isinstance(group.hardware, Recorded):
            cores = group.hardware.file.engine.engine_cores
            version = group.hardware.serving_version
        asked = _asked(run, range(first, first + group.count), cores)
        figures.append(replace(asked, engine_version=version))
        first += group.count
    return tuple(figures)


def most_of(runs: Iterable[tuple[RunFigures, ...]]) -> tuple[RunFigures, ...]:
    """The most that any of the runs asked of each group."""
    return tuple(_most(figures) for figures in zip(*runs, strict=True))


def range_warnings(fleet: FleetDescription, asked: tuple[RunFigures, ...]) -> tuple[str, ...]:
    """A sentence for each figure beyond what a group's costs were fitted to, and each other
    engine."""
    return tuple(
        f"{group.hardware.path}: {sentence}"
        for group, figures in zip(fleet.ordered, asked, strict=True)
        if isinstance(group.hardware, Recorded)
        for sentence in outside_range(group.hardware.file, figures)
    )


def _asked(run: FleetRun, replicas: range, cores: int) -> RunFigures:
    progress = run.state.progress
    tokens = np.tile(
        run.workload.prompt_tokens.astype(np.int64) + run.workload.output_tokens,
        len(progress) // len(run.workload),
    )
    begun = ~np.isnan(progress["scheduled_ms"]) & ~np.isnan(progress["finish_ms"])
    batch = kv_tokens = 0
    for r in replicas:
        rows = begun & (progress["replica"] == r)
        room = run.fleet.engines[r].kv_blocks * run.fleet.engines[r].block_size
        span_ms = progress["scheduled_ms"][rows], progress["finish_ms"][rows]
        batch = max(batch, most_at_once(*span_ms, np.ones(rows.sum(), dtype=np.int64)))
        kv_tokens = max(kv_tokens, min(room, most_at_once(*span_ms, tokens[rows])))
    open_loop = run.conditions.closed_loop is None
    shared = figures_of(run.workload, _sharing(run, replicas))
    return replace(
        shared,
        rate_rps=shared.rate_rps * cores if open_loop and shared.rate_rps is not None else None,
        batch=batch * cores,
        kv_tokens=kv_tokens * cores,
        engine_model=run.engine_model,
    )


def _sharing(run: FleetRun, replicas: range) -> int:
    """How many replicas share the requests with these."""
    if run.fleet.split is None:
        return len(run.fleet.engines)
    prefills = run.fleet.split.prefill
    return prefills if replicas.start < prefills else len(run.fleet.engines) - prefills


def _most(figures: Iterable[RunFigures]) -> RunFigures:
    first, *others = figures
    values = {}
    for field in fields(first):
        given = [getattr(each, field.name) for each in (first, *others)]
        values[field.name] = None if None in given else max(given)
    return RunFigures(**values)
