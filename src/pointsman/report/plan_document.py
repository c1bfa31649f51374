"""A plan as a JSON document."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pointsman.comparison.differences import BETTER, NOT_TOLD, WORSE
from pointsman.core.percentiles import PERCENTILE_METHOD
from pointsman.plan.advice import advise
from pointsman.plan.candidate import ShapeResult
from pointsman.plan.difference import Difference
from pointsman.plan.measure import ShapeMetrics
from pointsman.plan.plan import Plan
from pointsman.plan.warnings import plan_warnings
from pointsman.report.document import head, workload_document
from pointsman.workload.reading import ReadOptions
from pointsman.workload.steps import arrival_step_ms

PLAN_SCHEMA = "pointsman.plan/1"


def plan_document(plan: Plan, reading: ReadOptions) -> dict[str, Any]:
    """A plan: what was asked, the baseline, the shapes (the best first), ranking and front."""
    return {
        **head(PLAN_SCHEMA),
        "percentile_method": PERCENTILE_METHOD,
        "workload": workload_document(plan.workloads[0], reading),
        "hardware": _hardware_document(plan),
        "question": _question_document(plan),
        "simulations": plan.simulations,
        "resumed_shapes": plan.resumed,
        "baseline": _shape_document(plan, plan.baseline),
        "shapes": [
            _shape_document(plan, result)
            for result in plan.results
            if result.shape != plan.baseline.shape
        ],
        "ranking": [result.shape.label for result in plan.results],
        "pareto": [result.shape.label for result in plan.pareto],
        "dropped_shapes": sum(dropped.shapes for dropped in plan.dropped),
        "dropped": [asdict(dropped) for dropped in plan.dropped],
        "refused_shapes": len(plan.refused),
        "refused": [asdict(refused) for refused in plan.refused],
        "warnings": list(plan_warnings(plan)),
        "advice": asdict(advise(plan)),
    }


def _hardware_document(plan: Plan) -> dict[str, Any]:
    single, costs = plan.hardware.single, plan.hardware.calibrated
    return {
        "model": single.model.name,
        "device": single.device.name,
        "gpus": plan.hardware.gpus,
        "costs": "roofline" if costs is None else "calibrated",
        "recorded_engine_version": None if costs is None else costs.engine.version,
        "engine_version": plan.hardware.engine_version,
        "kv_block_size_tokens": plan.block_size,
        "bytes_per_weight": single.bytes_per_weight,
        "gpu_memory_utilization": single.gpu_memory_utilization,
        "max_num_seqs": single.max_num_seqs if costs is None else costs.engine.max_num_seqs,
        "max_num_batched_tokens": single.max_num_batched_tokens
        if costs is None
        else costs.engine.max_num_batched_tokens,
    }


def _question_document(plan: Plan) -> dict[str, Any]:
    question = plan.question
    return {
        "objectives": asdict(question.objectives),
        "attainment": question.attainment,
        "offered_rps": plan.offered_rps,
        "arrival_step_ms": arrival_step_ms(plan.workloads[0].arrival_ms),
        "policies": [policy.label for policy in question.policy_objects()],
        **asdict(question.limits),
        "model_error_fraction": question.model_error_fraction,
        "level": question.level,
        "replications": len(plan.workloads) if len(plan.workloads) > 1 else question.resamples,
        "replications_of": "seeds" if len(plan.workloads) > 1 else "blocks of the trace",
        "seed": question.seed,
    }


def _shape_document(plan: Plan, result: ShapeResult) -> dict[str, Any]:
    shape, judgement, labels = result.shape, result.judgement, [r.shape for r in plan.results]
    return {
        "kind": shape.kind,
        "shape": shape.label,
        "replicas": shape.replicas,
        "tp": shape.tp,
        "pp": shape.pp,
        "prefill_replicas": shape.prefill,
        "gpus": shape.gpus,
        "policy": result.policy,
        "rank": labels.index(shape) + 1,
        "pareto": shape in [each.shape for each in plan.pareto],
        "metrics": _metrics_document(result.metrics),
        "max_rate": _rate_document(plan, result),
        "policies": [asdict(figures) for figures in result.tried],
        "interval": None if result.difference is None else _interval(result.difference),
        "decision": None if judgement is None else judgement.decision,
        "reason": None if judgement is None else judgement.reason,
        "next_action": None if judgement is None else judgement.next_action,
        "checks": [] if judgement is None else [asdict(check) for check in judgement.checks],
        "near_saturation": None if judgement is None else judgement.near_saturation,
        "undecided_error_fraction": None
        if judgement is None
        else judgement.undecided_error_fraction,
        "simulations": result.simulations,
    }


def _metrics_document(metrics: ShapeMetrics) -> dict[str, Any]:
    figures = asdict(metrics)
    serving = figures.pop("serving")
    replicas = serving.pop("replicas")
    requests = [replica["requests"] for replica in replicas]
    return {**serving, **figures, "replica_requests": requests}


def _rate_document(plan: Plan, result: ShapeResult) -> dict[str, Any]:
    """The highest rate that keeps the objectives; ``fails_at`` is null where the search ended
    before it was reached."""
    held, failed = result.limit.held, result.limit.failed
    rate = None if held is None else held * plan.offered_rps
    serving = None if result.at_limit is None else result.at_limit.serving
    return {
        "times_offered": held,
        "fails_at_times_offered": failed,
        "max_requests_per_s": rate,
        "max_requests_per_s_per_gpu": None if rate is None else rate / result.shape.gpus,
        "output_tokens_per_s_per_gpu_at_max": None
        if serving is None
        else serving.output_tokens_per_s_per_gpu,
        "p95_ttft_ms_at_max": None if serving is None else serving.ttft_ms.p95,
        "p95_tpot_ms_at_max": None if serving is None else serving.tpot_ms.p95,
        "p95_e2e_ms_at_max": None if serving is None else serving.e2e_ms.p95,
    }


def _interval(difference: Difference) -> dict[str, Any]:
    ratio, goodput = difference.e2e_ratio, difference.goodput
    return {
        "figure": "e2e_ratio",
        **({"estimate": None, "low": None, "high": None} if ratio is None else asdict(ratio)),
        "verdict": None if ratio is None else _verdict(1.0 - ratio.high, 1.0 - ratio.low),
        "level": difference.level,
        "n": difference.n,
        "goodput_difference": asdict(goodput) | {"verdict": _verdict(goodput.low, goodput.high)},
    }


def _verdict(least: float, most: float) -> str:
    """What the bounds of a gain leave standing of it."""
    if least > 0.0:
        return BETTER
    return WORSE if most < 0.0 else NOT_TOLD
