"""Predictions of an experiment on its way: made when the one replica was measured, and held against
the others when they were.

    foretelling = Foretelling(bench, say)
    run(bench, shown, foretelling.after_single)     calibrates, predicts, writes; before they run
    foretelling.report(files)                       what came true
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from pathlib import Path

from pointsman.bench.client.load import Warmup
from pointsman.bench.client.rows import Row, read_rows
from pointsman.bench.engines.llamacpp import CONTEXT_TOKENS, SLOTS
from pointsman.bench.experiment import Experiment, GroupRun
from pointsman.bench.group_file import Collected
from pointsman.bench.groups import Bench
from pointsman.bench.prediction.calibrated import Calibrated, calibrated
from pointsman.bench.prediction.limits import EngineLimits
from pointsman.bench.prediction.measured_group import MeasuredGroup, measured_group
from pointsman.bench.prediction.offered import Offered
from pointsman.bench.prediction.predicted import Predicted, predict, write_prediction
from pointsman.bench.prediction.report import PredictionReport, against
from pointsman.bench.requests import digest_of
from pointsman.bench.shapes import LLAMACPP
from pointsman.calibrate.cost_file import write_cost_file
from pointsman.core.errors import PointsmanError
from pointsman.evidence.decoding import read_envelope
from pointsman.evidence.envelope import ServingGroup
from pointsman.evidence.folder import pretty, write_new

COSTS = "prediction/costs.json"
REPORT = "prediction/report.json"
DRAWS = 5  # simulated repeats, for policies that draw
_MANY_SEQUENCES = 256  # vLLM's default of max_num_seqs


class Foretelling:
    """Nothing that goes wrong here ends the experiment: it is said, and no group is predicted."""

    def __init__(self, bench: Bench, say: Callable[[str], None]) -> None:
        self._bench = bench
        self._say = say
        self._predicted: list[Predicted] = []

    def after_single(self, single: Collected) -> Path | None:
        """Calibrate on it and predict all others; the file of costs."""
        try:
            return self._predict_from(single)
        except PointsmanError as error:
            self._say(f"nothing is predicted: {error}")
            return None

    def _predict_from(self, single: Collected) -> Path:
        bench = self._bench
        self._say(f"{single.run.name}: fitting costs to it, to predict the others")
        offered = offered_of(bench)
        rows = [list(each.measured.rows) for each in single.repeats]
        costs = calibrated(single.run, rows, offered, limits_of(bench.experiment))
        path = bench.folder / COSTS
        path.parent.mkdir(parents=True, exist_ok=True)
        write_cost_file(path, costs.file)
        for run in bench.experiment.runs():
            if not run.group.command:
                self._predict(costs, offered, run)
        return path

    def _predict(self, costs: Calibrated, offered: Offered, run: GroupRun) -> None:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        found = predict(costs, run, offered, now)
        write_prediction(self._bench.folder, found)
        self._predicted.append(found)

    def report(self, files: Sequence[Path]) -> PredictionReport | None:
        """Hold what was predicted against these groups, and write that beside them."""
        if not self._predicted:
            return None
        names = {each.group for each in self._predicted}
        measured = {path.stem: _measured(path) for path in files if path.stem in names}
        report = against(self._predicted, measured)
        write_new(self._bench.folder / REPORT, pretty(report))
        return report


def offered_of(bench: Bench) -> Offered:
    """What every group of it is offered."""
    slo = bench.experiment.slo
    return Offered(
        bench.workload,
        bench.loop,
        Warmup(bench.experiment.warmup_requests),
        tuple(range(DRAWS)),
        digest_of(bench.workload),
        objectives=None if slo is None else slo.objectives(),
        folder=bench.file.parent,
    )


def limits_of(experiment: Experiment) -> EngineLimits:
    """What one replica has room for, as its engine is started."""
    wanted = experiment.engine
    if wanted.name == LLAMACPP:
        slots = wanted.max_running or SLOTS
        context = wanted.context_tokens or CONTEXT_TOKENS
        return EngineLimits(slots, context_tokens=context, shares_late=True)
    return EngineLimits(
        wanted.max_running or _MANY_SEQUENCES,
        context_tokens=wanted.context_tokens,
        async_scheduling=None,
    )


def _measured(path: Path) -> MeasuredGroup:
    envelope = read_envelope(path)
    assert isinstance(envelope, ServingGroup)
    return measured_group(envelope, _rows_of(path, envelope))


def _rows_of(path: Path, envelope: ServingGroup) -> list[Row]:
    files = [repeat.rows.file for repeat in envelope.repeats if repeat.rows is not None]
    return [row for file in files for row in read_rows(path.parent / file)]
