"""Hardware whose service times are round figures, workloads of one rhythm, finished answers.

Costs are those of a file of ``calibrate``, so that every figure can be worked out by hand.
"""

from __future__ import annotations

import numpy as np

from pointsman import workload_of_columns
from pointsman.costs.calibrated import CostFile, EngineFacts, Residuals, ValidityRange
from pointsman.costs.devices import device_named
from pointsman.costs.iteration import IterationCosts
from pointsman.costs.models import model_named
from pointsman.costs.roofline import Instance
from pointsman.metrics.goodput import Objectives, objectives_of
from pointsman.metrics.latency import Answers
from pointsman.metrics.replicas import ReplicaLoads
from pointsman.metrics.serving import serving_metrics
from pointsman.plan.hardware import Hardware
from pointsman.plan.measure import ShapeMetrics
from pointsman.plan.question import Question

SINGLE = Instance(model=model_named("llama-3.1-8b"), device=device_named("h100"))
TTFT_30 = objectives_of(["ttft:30"])

# A prompt of 100 tokens takes 1 + 0.09 * 100 = 10 ms, and its one token comes with it.
COSTS = IterationCosts(1.0, 0.09, 0.0, 0.0)
SERVICE_MS = 10.0


def hardware(
    gpus: int,
    costs: IterationCosts = COSTS,
    *,
    kv_blocks: int = 1000,
    prompt_tokens: int = 10_000,
    rate_rps: float = 1e6,
) -> Hardware:
    """Replicas of one GPU that serve one request at a time, valid up to what is given."""
    file = CostFile(
        schema="pointsman.costs/1",
        costs=costs,
        shared_blocks=0.0,
        engine=EngineFacts(
            model="vllm-v1",
            version=None,
            served_model=None,
            tensor_parallel=1,
            engine_cores=1,
            max_num_seqs=1,
            max_num_batched_tokens=8192,
            kv_blocks=kv_blocks,
            block_size=16,
            async_scheduling=False,
        ),
        fitted_requests=100,
        valid_up_to=ValidityRange(prompt_tokens, 100, 256, 1_000_000, rate_rps),
        residuals=Residuals(loss=0.0, mean_absolute=0.02),
    )
    return Hardware(SINGLE, gpus, 16, file)


def question(objectives: Objectives = TTFT_30, **changes) -> Question:
    return Question(objectives=objectives, **{"policies": ("round_robin",), **changes})


def steady(gap_ms: float, requests: int = 400):
    """Prompts of 100 tokens and answers of one, at equal distances."""
    return workload_of_columns(
        gap_ms * np.arange(requests),
        prompt_tokens=np.full(requests, 100),
        output_tokens=np.full(requests, 1),
    )


def metrics_of(
    makespan_ms: float,
    *,
    kept: int = 100,
    imbalance_ratio: float = 0.0,
    comm_cost_ms: float = 0.0,
) -> ShapeMetrics:
    """100 requests on one replica, so many of which had their token within 30 ms."""
    ttft_ms = np.where(np.arange(100) < kept, 10.0, 100.0)
    finish_ms = ttft_ms.copy()
    finish_ms[-1] = makespan_ms
    zeros = np.zeros(100, dtype=np.int64)
    answers = Answers(
        replica=zeros,
        status=zeros.astype(np.int8),
        arrival_ms=np.zeros(100),
        scheduled_ms=np.zeros(100),
        first_token_ms=ttft_ms,
        finish_ms=finish_ms,
        prompt_tokens=zeros + 100,
        output_tokens=zeros + 1,
        cached_tokens=zeros,
        preemptions=zeros,
    )
    loads = ReplicaLoads(np.ones(1), np.zeros(1), np.zeros(1), np.ones(1, dtype=np.int64))
    return ShapeMetrics(
        serving=serving_metrics(answers, loads, TTFT_30, gpus=1),
        throughput_req_per_ms=100.0 / makespan_ms,
        imbalance_ratio=imbalance_ratio,
        comm_cost_ms=comm_cost_ms,
        handoff_total_ms=0.0,
        handoff_total_bytes=0.0,
        peak_batch=1,
        peak_kv_tokens=112,
    )
