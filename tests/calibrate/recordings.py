"""Run folders made by hand or by the simulator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pointsman.calibrate.recording import Times

META: dict[str, Any] = {
    "model": "tiny",
    "vllm_version": "0.19.0",
    "engine_kwargs": {"max_num_seqs": 8, "max_num_batched_tokens": 256},
}


def request(number: int, at_s: float, **changed: Any) -> dict[str, Any]:
    """A request that is answered within a second, with ten tokens in half of it."""
    return {
        "request_id": f"r{number}",
        "input_toks": 100,
        "output_toks": 10,
        "queued_ts": 50.0 + at_s,
        "scheduled_ts": 50.1 + at_s,
        "first_token_ts": 50.5 + at_s,
        "last_token_ts": 51.0 + at_s,
        **changed,
    }


def run_folder(
    folder: Path, requests: list[dict[str, Any]], meta: Any = None, gauges: str | None = None
) -> Path:
    (folder / "meta.json").write_text(json.dumps(META if meta is None else meta))
    lines = "".join(json.dumps(row) + "\n" for row in requests)
    (folder / "requests.jsonl").write_text(lines)
    if gauges is not None:
        (folder / "timeseries.csv").write_text(gauges)
    return folder


def requests_of(prompt: list[int], times: Times) -> list[dict[str, Any]]:
    """The lines that a run with these times would have left."""
    columns = (times.arrival_ms, times.scheduled_ms, times.first_token_ms, times.finish_ms)
    rows = zip(prompt, times.output_tokens.tolist(), *(c.tolist() for c in columns), strict=True)
    names = ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts")
    return [
        {
            "request_id": f"r{i}",
            "input_toks": tokens,
            "output_toks": output,
            **{name: 9000.0 + value / 1000.0 for name, value in zip(names, at_ms, strict=True)},
        }
        for i, (tokens, output, *at_ms) in enumerate(rows)
    ]
