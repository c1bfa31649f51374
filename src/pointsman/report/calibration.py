"""A calibration as a table, as JSON and as CSV."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from pointsman.calibrate.agreement import Agreement, Figure
from pointsman.calibrate.calibration import Calibration
from pointsman.calibrate.over_time import OverTime
from pointsman.calibrate.simulated import front_of
from pointsman.core.percentiles import PERCENTILE_METHOD
from pointsman.report.document import head, text_of
from pointsman.report.table import (
    cell,
    csv_text,
    number,
    percent,
    text_columns,
    text_table,
    wrapped,
)

CALIBRATION_SCHEMA = "pointsman.calibration/1"

_HEADINGS = ("figure", "recorded", "simulated", "error")
_CSV_HEADINGS = ("requests", "quantity", "figure", "recorded", "simulated", "error")
_DIGITS = 4


def calibration_text(result: Calibration, form: str) -> str:
    """The calibration as ``table``, ``json`` or ``csv``."""
    if form == "json":
        return text_of(_document(result))
    if form == "csv":
        return csv_text(_CSV_HEADINGS, list(_csv_rows(result)))
    return _table(result)


def _document(result: Calibration) -> dict[str, Any]:
    recording, sharing = result.recording, result.sharing
    facts: dict[str, Any] = msgspec.to_builtins(result.file)
    return {
        **head(CALIBRATION_SCHEMA),
        "percentile_method": PERCENTILE_METHOD,
        "recording": str(recording.folder),
        "n": len(recording),
        "fitted": result.fitted,
        "fitted_to": ["ttft_ms", "tpot_ms", "e2e_ms"],
        "arrivals": recording.arrivals,
        "front": front_of(recording.setup),
        "engine": facts["engine"],
        "costs": facts["costs"],
        "shared_blocks": facts["shared_blocks"],
        "sharing_samples": None if sharing is None else sharing.samples,
        "valid_up_to": facts["valid_up_to"],
        "residuals": facts["residuals"],
        "errors": _errors(result.overall),
        "errors_not_fitted": None if result.held_out is None else _errors(result.held_out),
        "over_time": _over_time(result.over_time),
        "figures": _figures(result.overall),
        "figures_not_fitted": None if result.held_out is None else _figures(result.held_out),
    }


def _errors(sides: Agreement) -> dict[str, dict[str, float | None]]:
    return {
        quantity: {name: figure.error for name, figure in figures.items()}
        for quantity, figures in sides.items()
    }


def _over_time(sides: OverTime | None) -> dict[str, dict[str, float]] | None:
    if sides is None:
        return None
    return {
        name: {"mean_difference": side.mean_difference, "worst_difference": side.worst_difference}
        for name, side in (("running", sides.running), ("waiting", sides.waiting))
    }


def _figures(sides: Agreement) -> dict[str, dict[str, dict[str, float]]]:
    return {
        quantity: {
            name: {"recorded": figure.recorded, "simulated": figure.simulated}
            for name, figure in figures.items()
        }
        for quantity, figures in sides.items()
    }


def _parts(result: Calibration) -> Iterator[tuple[str, Agreement]]:
    yield "all", result.overall
    if result.held_out is not None:
        yield "not_fitted", result.held_out


def _csv_rows(result: Calibration) -> Iterator[tuple[object, ...]]:
    for part, sides in _parts(result):
        for quantity, name, figure in _flat(sides):
            yield part, quantity, name, figure.recorded, figure.simulated, figure.error


def _flat(sides: Agreement) -> Iterator[tuple[str, str, Figure]]:
    for quantity, figures in sides.items():
        for name, figure in figures.items():
            yield quantity, name, figure


def _table(result: Calibration) -> str:
    count, fitted = len(result.recording), result.fitted
    titles = {
        "all": f"all {number(count)} requests",
        "not_fitted": f"the {number(count - fitted)} requests not fitted",
    }
    blocks = [_headline(result), _costs(result)]
    for part, sides in _parts(result):
        rows = [_row(*item) for item in _flat(sides)]
        blocks.append(f"{titles[part]}\n{text_table(_HEADINGS, rows)}")
    return "\n".join(blocks)


def _row(quantity: str, name: str, figure: Figure) -> tuple[str, ...]:
    recorded, simulated = number(figure.recorded, _DIGITS), number(figure.simulated, _DIGITS)
    return f"{name} {quantity}", recorded, simulated, percent(figure.error)


def _headline(result: Calibration) -> str:
    setup, engine = result.recording.setup, result.file.engine
    scheduling = "with" if engine.async_scheduling else "without"
    text = (
        f"{engine.served_model or 'a model'} on {engine.model} {engine.version or ''}".rstrip()
        + f", fitted to the first {number(result.fitted)} of {number(len(result.recording))}"
        f" requests, {scheduling} asynchronous scheduling; {_sharing(result)}."
    )
    if setup.engine_cores > 1:
        text += f" {setup.engine_cores} engine cores behind the front {front_of(setup)}."
    return wrapped(text)


def _sharing(result: Calibration) -> str:
    if result.sharing is None:
        return "whether prompts share blocks is not recorded, and taken as no"
    return f"blocks that prompts share, in the mean: {number(result.sharing.blocks)}"


def _costs(result: Calibration) -> str:
    values: dict[str, float] = msgspec.to_builtins(result.file.costs)
    rows = [(f"  {name}", cell(name, value, _DIGITS)) for name, value in values.items()]
    return "costs, ms\n" + text_columns(rows)
