"""The lesson on distributed inference: dicts in, dicts out.

``simulate_distributed_inference`` is the queue-aware policy on a burst that arrives at once: with
every arrival at 0 the wait at a replica is its load so far, so the shortest wait, lowest index
among equals, is the lesson's ``least_loaded``. Costs are rounded to 4 decimals before they are
added up, as the lesson does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pointsman.core.errors import wrong_value
from pointsman.core.percentiles import left_to_right_sum
from pointsman.costs.stages import PD_DISAGGREGATED, StageCosts, Stages, stages_of
from pointsman.lessons import fields
from pointsman.metrics.service import replica_loads
from pointsman.metrics.skew import skew_ratio
from pointsman.policies.catalogue import POLICIES
from pointsman.sim.fifo import FifoFleet, Routed, simulate
from pointsman.verdict.decide import Candidate, Limits, decide
from pointsman.workload.workload import workload_of_columns

DECIMALS = 4


def estimate_request_cost(request: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The stages of one request in ms, rounded to 4 decimals.

    ``request`` needs ``prompt_tokens`` and ``generate_tokens``; ``config`` needs
    ``prefill_ms_per_token``, ``decode_ms_per_token``, ``comm_ms_per_token``, ``tp_degree``,
    ``pipeline_penalty_ms`` and ``pp_stages``. Beside the lesson's keys: ``pipeline_ms``;
    ``ttft_proxy_ms``: all that stands before the first token (prefill, its communication, the
    pipeline, the hand-off); ``tpot_proxy_ms``: decode and its communication per generated token,
    None when there is none. Raises InputError for a missing or wrong value.
    """
    return _cost(request, _costs(config), "request")


def _cost(request: Mapping[str, Any], costs: StageCosts, where: str) -> dict[str, Any]:
    prompt = fields.number(request, "prompt_tokens", where)
    generated = fields.number(request, "generate_tokens", where)
    stages = stages_of(prompt, generated, costs)
    return {
        "prefill_ms": round(stages.prefill_ms, DECIMALS),
        "decode_ms": round(stages.decode_ms, DECIMALS),
        "comm_ms": round(stages.comm_ms, DECIMALS),
        "handoff_bytes": round(stages.handoff_bytes, DECIMALS),
        "handoff_ms": round(stages.handoff_ms, DECIMALS),
        "total_ms": round(stages.total_ms, DECIMALS),
        "pipeline_ms": round(stages.pipeline_ms, DECIMALS),
        **_proxies(stages, prompt, generated, costs),
    }


def _proxies(
    stages: Stages, prompt: float, generated: float, costs: StageCosts
) -> dict[str, float | None]:
    before_decode = stages_of(prompt, 0, costs)
    decode_ms = stages.total_ms - before_decode.total_ms
    return {
        "ttft_proxy_ms": round(before_decode.total_ms, DECIMALS),
        "tpot_proxy_ms": round(decode_ms / generated, DECIMALS) if generated else None,
    }


def simulate_distributed_inference(
    requests: list[dict[str, Any]], num_replicas: int, config: Mapping[str, Any]
) -> dict[str, Any]:
    """Spread a burst over replicas by least load and add up what it costs.

    The burst keeps its input order. Beside the lesson's keys: ``replica_load_ms`` and
    ``replica_requests``, an entry a replica. Raises InputError for a missing or wrong value or
    fewer than one replica.
    """
    replicas = fields.replica_count(num_replicas)
    costs = _costs(config)
    ledger = [
        _cost(request, costs, f"requests[{index}]")
        for index, request in enumerate(fields.rows(requests, "requests"))
    ]
    routed = _burst([cost["total_ms"] for cost in ledger], replicas)
    loads = replica_loads(routed.served, replicas)
    load_ms = np.array([load.busy_ms for load in loads])
    makespan_ms = float(load_ms.max())
    figures = {
        "single_replica_time_ms": _total(ledger, "total_ms"),
        "makespan_ms": makespan_ms,
        "throughput_req_per_ms": len(ledger) / makespan_ms if makespan_ms else 0.0,
        "imbalance_ratio": skew_ratio(load_ms, mean=left_to_right_sum(load_ms) / replicas),
        "comm_cost_ms": _total(ledger, "comm_ms"),
        "handoff_total_ms": _total(ledger, "handoff_ms"),
        "handoff_total_bytes": _total(ledger, "handoff_bytes"),
        "queue_wait_total_ms": left_to_right_sum(routed.queue_wait_ms),
    }
    return {
        "routing_strategy": "least_loaded",
        "serving_mode": costs.serving_mode,
        "assignments": routed.replica.tolist(),
        **{name: round(value, DECIMALS) for name, value in figures.items()},
        "replica_load_ms": [round(load.busy_ms, DECIMALS) for load in loads],
        "replica_requests": [load.requests for load in loads],
    }


def _burst(service_ms: list[float], replicas: int) -> Routed:
    arrivals = np.zeros(len(service_ms))
    burst = workload_of_columns(arrivals, service_ms=np.array(service_ms, dtype=np.float64))
    return simulate(burst, POLICIES["queue_aware"], FifoFleet(replicas))


def _total(ledger: list[dict[str, Any]], key: str) -> float:
    return left_to_right_sum(np.array([cost[key] for cost in ledger], dtype=np.float64))


def recommend_distributed_inference_run(
    baseline: Mapping[str, Any],
    candidate: Mapping[str, Any],
    max_imbalance_ratio: float,
    max_comm_ratio: float,
) -> dict[str, Any]:
    """Accept, tune or reject, with the reason and what to do next.

    Reads ``single_replica_time_ms`` of the baseline (default 0) and ``makespan_ms`` (0),
    ``imbalance_ratio`` (1) and ``comm_cost_ms`` (0) of the candidate.
    """
    verdict = decide(
        fields.number(baseline, "single_replica_time_ms", "baseline", default=0.0),
        Candidate(
            makespan_ms=fields.number(candidate, "makespan_ms", "candidate", default=0.0),
            imbalance_ratio=fields.number(candidate, "imbalance_ratio", "candidate", default=1.0),
            comm_cost_ms=fields.number(candidate, "comm_cost_ms", "candidate", default=0.0),
        ),
        Limits(
            fields.ratio(max_imbalance_ratio, "max_imbalance_ratio", "limits"),
            fields.ratio(max_comm_ratio, "max_comm_ratio", "limits"),
        ),
    )
    return {
        "decision": verdict.decision,
        "reason": verdict.reason,
        "next_action": verdict.next_action,
    }


def _costs(config: Mapping[str, Any]) -> StageCosts:
    config = fields.mapping(config, "config")
    required = {
        key: fields.number(config, key, "config")
        for key in (
            "prefill_ms_per_token",
            "decode_ms_per_token",
            "comm_ms_per_token",
            "pipeline_penalty_ms",
            "tp_degree",
            "pp_stages",
        )
    }
    costs = StageCosts(
        **required,
        serving_mode=config.get("serving_mode", "replica"),
        kv_bytes_per_token=fields.number(config, "kv_bytes_per_token", "config", default=0.0),
        handoff_base_ms=fields.number(config, "handoff_base_ms", "config", default=0.0),
        handoff_bytes_per_ms=fields.number(config, "handoff_bytes_per_ms", "config", default=1.0),
    )
    if costs.serving_mode == PD_DISAGGREGATED and not costs.handoff_bytes_per_ms:
        raise wrong_value("config", "handoff_bytes_per_ms", 0, "a number > 0")
    return costs
