"""The least that a page can be made of, for each kind of document that is not written in place."""

from __future__ import annotations

from typing import Any

Document = dict[str, Any]

_WORKLOAD = {
    "source": "trace.jsonl",
    "format": "pointsman",
    "sha256": None,
    "requests": 3,
    "span_ms": 100.0,
}
_SPREAD = {"count": 3, "mean": 2.0, "p50": 2.0, "p95": 3.0, "p99": 3.0, "worst": 3.0}
_SERVING = {
    "offered": 3,
    "statuses": {"finished": 3},
    **dict.fromkeys(("queue_wait_ms", "ttft_ms", "tpot_ms", "e2e_ms"), _SPREAD),
    "requests_per_s": 20.0,
    "output_tokens_per_s_per_gpu": 100.0,
    "goodput": {"fraction": 0.9},
    "cached_token_fraction": None,
    "recomputed_token_fraction": None,
    "utilisation": 0.5,
}
_REPLICA = {
    **{"requests": 3, "tokens": 9, "busy_ms": 50.0, "iterations": 6, "preemptions": 0},
    **{"cached_token_fraction": None, "kv_used_mean_fraction": 0.1, "kv_used_peak_fraction": 0.2},
}
_ADVICE = {"sentence": "Take one."}
_OBJECTIVES = {"ttft_ms": 40.0, "tpot_ms": None, "e2el_ms": None}

FLEET: Document = {
    "schema": "pointsman.fleet-comparison/1",
    "workload": _WORKLOAD,
    "fleet": {
        "replicas": 1,
        "gpus": 1,
        "model": "vllm-v1",
        "seed": 0,
        "groups": [{"count": 1, "model": "m", "device": "h100", "costs_from": "roofline"}],
    },
    "objectives": _OBJECTIVES,
    "baseline": "a",
    "results": [
        {
            "policy": "a",
            "label": "a",
            "parameters": {},
            "metrics": _SERVING,
            "skews": {"all": {"requests": 1.0, "tokens": 1.0, "busy": 1.0}},
            "to_baseline": [
                {
                    "figure": "ttft_ms",
                    "interval": {"estimate": 1.0, "low": 0.5, "high": 1.5, "level": 0.95},
                    "verdict": "worse",
                }
            ],
            "reasons": {"turn": 3},
            "replicas": [_REPLICA],
        }
    ],
    "warnings": [],
    "advice": _ADVICE,
}

_SHAPE = {
    "kind": "replicas",
    "shape": "2xTP1",
    "prefill_replicas": 0,
    "gpus": 2,
    "policy": "a",
    "rank": 1,
    "metrics": {**_SERVING, "replica_requests": [2, 1]},
    "max_rate": {
        "times_offered": 2.0,
        "fails_at_times_offered": 3.0,
        "max_requests_per_s": 40.0,
        "output_tokens_per_s_per_gpu_at_max": 200.0,
        "p95_ttft_ms_at_max": 5.0,
        "p95_tpot_ms_at_max": 5.0,
        "p95_e2e_ms_at_max": 9.0,
    },
    "interval": {
        **{"estimate": 0.5, "low": 0.4, "high": 0.6},
        "goodput_difference": {"estimate": 0.1, "low": -0.1, "high": 0.2},
    },
    "decision": "accept",
    "reason": "it is faster",
}

PLAN: Document = {
    "schema": "pointsman.plan/1",
    "workload": _WORKLOAD,
    "hardware": {"model": "m", "device": "h100", "gpus": 2, "costs": "roofline"},
    "question": {
        "objectives": _OBJECTIVES,
        "attainment": 0.95,
        "offered_rps": 20.0,
        "model_error_fraction": 0.25,
        "level": 0.95,
        "replications": 400,
        "replications_of": "blocks of the trace",
        "seed": 0,
    },
    "baseline": {**_SHAPE, "shape": "1xTP1", "rank": 2, "interval": None, "decision": None},
    "shapes": [_SHAPE],
    "warnings": [],
    "advice": _ADVICE,
}

_AT_LOAD = {
    "load_ratio": 2.0,
    "goodput_fraction": 0.95,
    "p99_ttft_ms": 30.0,
    "p99_tpot_ms": 5.0,
    "cached_token_fraction": None,
}

LOAD_BENCH: Document = {
    "schema": "pointsman.policies-bench/1",
    "model": "vllm-v1",
    "objectives": _OBJECTIVES,
    "attainment_fraction": 0.95,
    "tolerance_ratio": 1.05,
    "seed": 0,
    "simulations": 4,
    "simulated_hours": 0.1,
    "cells": [
        {
            "trace": "steady",
            "fleet": "2",
            "requests": 2400,
            "rate_rps": 5.0,
            "policies": [
                {
                    **{"policy": "a", "whose": "ours", "load_ratio": 2.0},
                    **{"at": _AT_LOAD, "tried": [_AT_LOAD]},
                }
            ],
        }
    ],
    "summary": None,
}

REPLAY: Document = {
    "schema": "pointsman.replay/1",
    "recorded_policy": "a",
    "replayed_policy": "b",
    "choices": 2,
    "agreeing": 1,
    "differences": [
        {
            "sequence": 1,
            "request_id": "r1",
            "time_ms": 5.0,
            "recorded_replica": "http://a",
            "recorded_reason": "home",
            "replayed_replica": "http://b",
            "replayed_reason": "turn",
        }
    ],
    "unfinished": 0,
    "truncated_lines": 0,
    "policy_changed": False,
}

REPLAYS: Document = {"schema": "pointsman.replays/1", "replays": [REPLAY, REPLAY]}

SOUND: dict[str, Document] = {
    document["schema"]: document for document in (FLEET, PLAN, LOAD_BENCH, REPLAY, REPLAYS)
}
