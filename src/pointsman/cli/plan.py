"""``pointsman plan``: which shape a number of GPUs should take."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from pointsman.cli import fleet_flags, options, progress

if TYPE_CHECKING:
    from pointsman.costs.calibrated import CostFile
    from pointsman.costs.roofline import Instance
    from pointsman.plan.hardware import Hardware
    from pointsman.plan.plan import Plan
    from pointsman.plan.question import Question
    from pointsman.workload.workload import Workload

NAME = "plan"
HELP = "search replicas x TP x PP, prefill/decode splits and policies for objectives on given GPUs"

KIND_NAMES = ("replicas", "tp_pp", "disaggregated")
_SIMULATIONS_A_SHAPE = 12  # about; for the bar alone


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    options.add_reading(parser)
    _add_hardware(parser.add_argument_group("hardware"))
    _add_question(parser.add_argument_group("question"))
    _add_certainty(parser.add_argument_group("how sure a verdict has to be"))
    _add_running(parser.add_argument_group("running"))
    options.add_seed(parser)
    options.add_output(parser)
    options.add_report(parser)


def _add_hardware(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--model", required=True, metavar="NAME", help="such as llama-3.1-8b")
    group.add_argument("--device", required=True, metavar="NAME", help="such as h100 or a100-80gb")
    group.add_argument("--gpus", type=int, required=True, metavar="N", help="how many at most")
    group.add_argument("--models", type=Path, metavar="FILE", help="further models, .toml")
    group.add_argument("--devices", type=Path, metavar="FILE", help="further devices, .toml")
    group.add_argument(
        "--costs", type=Path, metavar="FILE", help="what calibrate wrote, in place of the roofline"
    )
    group.add_argument("--engine-version", metavar="V", help=fleet_flags.ENGINE_VERSION_HELP)
    group.add_argument(
        "--kv-block-size",
        type=int,
        metavar="TOKENS",
        help="of the engines' caches (default: the trace's where it is 16..512, else 16)",
    )
    group.add_argument("--bytes-per-weight", type=float, metavar="B", help="default: 2")
    group.add_argument("--gpu-memory-utilization", type=float, metavar="X", help="default: 0.9")
    group.add_argument("--max-num-seqs", type=int, metavar="N", help="default: 256")
    group.add_argument("--max-num-batched-tokens", type=int, metavar="N", help="default: 8192")


def _add_question(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--goodput",
        nargs="+",
        action="extend",
        required=True,
        metavar="NAME:MS",
        help="what a request must keep, as in ttft:500 tpot:50 e2el:20000",
    )
    group.add_argument(
        "--attainment",
        type=float,
        default=0.95,
        metavar="X",
        help="0..1 of all requests that must keep it (default: %(default)s)",
    )
    group.add_argument(
        "--kind",
        action="append",
        choices=KIND_NAMES,
        help="of shapes to search; repeat it (default: all three)",
    )
    group.add_argument(
        "--policy",
        action="append",
        metavar="NAME",
        help=f"{options.POLICY_HELP}; repeat it (default: least_requests,"
        " locality_aware, earliest_first_token, fewest_misses)",
    )
    group.add_argument(
        "--baseline",
        metavar="SHAPE",
        help="such as 4xTP2, 2xTP2PP2 or 1P3DxTP1 (default: one replica on the fewest GPUs)",
    )
    group.add_argument(
        "--max-imbalance-ratio",
        type=float,
        default=0.8,
        metavar="X",
        help="most (largest - smallest busy time) / mean (default: %(default)s)",
    )
    group.add_argument(
        "--max-comm-ratio",
        type=float,
        default=0.05,
        metavar="X",
        help="most communication over the baseline's makespan (default: %(default)s)",
    )


def _add_certainty(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--model-error",
        type=float,
        metavar="X",
        help="how far service times may be off, as a fraction (default: 0.25 for the roofline,"
        " the mean residual of calibrated costs)",
    )
    group.add_argument(
        "--replications",
        type=int,
        default=400,
        metavar="N",
        help="of the trace, resampled in blocks (default: %(default)s)",
    )
    group.add_argument(
        "--replicate-with",
        nargs="+",
        default=[],
        metavar="TRACE",
        help="traces of the same generator with other seeds, in place of resampling",
    )


def _add_running(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--jobs", type=int, metavar="N", help="processes (default: one a core)")
    group.add_argument(
        "--cluster", metavar="ADDRESS", help="ray://HOST:PORT, ray://auto or ray://local"
    )
    group.add_argument(
        "--resume",
        type=Path,
        metavar="FILE",
        help="keep finished shapes there, and take from it what is already finished",
    )
    group.add_argument(
        "--top", type=int, default=12, metavar="N", help="rows of the table (default: %(default)s)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Plan; 0."""
    from pointsman.core.errors import wrong_value
    from pointsman.costs.calibrated import read_calibrated
    from pointsman.plan.hardware import Hardware
    from pointsman.plan.question import default_block_size
    from pointsman.plan.warnings import plan_warnings
    from pointsman.report.plan import plan_text
    from pointsman.report.plan_document import plan_document

    if arguments.top < 1:
        raise wrong_value("plan", "--top", arguments.top, "an integer >= 1")
    _check_goes_with_costs(arguments)
    costs = None if arguments.costs is None else read_calibrated(arguments.costs)
    question, single = _question(arguments, costs), _single(arguments)
    workloads = _workloads(arguments)
    block_size = arguments.kv_block_size
    if block_size is None:
        block_size = default_block_size(workloads[0])
    hardware = Hardware(single, arguments.gpus, block_size, costs, arguments.engine_version)
    plan = _planned(arguments, workloads, hardware, question)
    if arguments.format in ("json", "csv"):  # the table has them
        for warning in plan_warnings(plan):
            options.say(f"warning: {warning}")
    reading = options.read_options(arguments)
    options.deliver(arguments, lambda form: plan_text(plan, reading, form, arguments.top))
    name = workloads[0].source.name
    options.deliver_report(arguments, name, lambda: plan_document(plan, reading))
    return 0


def _check_goes_with_costs(arguments: argparse.Namespace) -> None:
    """Refuse flags beside ``--costs`` that say what the file says."""
    from pointsman.core.errors import InputError

    for name in ("max_num_seqs", "max_num_batched_tokens", "kv_block_size"):
        if arguments.costs is not None and getattr(arguments, name) is not None:
            raise InputError(
                f"plan: --{name.replace('_', '-')} does not go with --costs, which hold for the"
                f" engine as it was recorded; expected the one or the other"
            )


def _single(arguments: argparse.Namespace) -> Instance:
    """One replica on one GPU."""
    from pointsman.costs.devices import device_named, read_devices
    from pointsman.costs.models import model_named, read_models
    from pointsman.costs.roofline import Instance

    models = None if arguments.models is None else read_models(arguments.models)
    devices = None if arguments.devices is None else read_devices(arguments.devices)
    names = (
        "bytes_per_weight",
        "gpu_memory_utilization",
        "max_num_seqs",
        "max_num_batched_tokens",
    )
    given = {name: value for name in names if (value := getattr(arguments, name)) is not None}
    model, device = model_named(arguments.model, models), device_named(arguments.device, devices)
    return Instance(model=model, device=device, **given)


def _question(arguments: argparse.Namespace, costs: CostFile | None) -> Question:
    from pointsman.metrics.goodput import objectives_of
    from pointsman.plan.question import DEFAULT_POLICIES, ROOFLINE_ERROR_FRACTION, Question
    from pointsman.verdict.decide import Limits

    error = arguments.model_error
    if error is None:
        error = ROOFLINE_ERROR_FRACTION if costs is None else costs.residuals.mean_absolute
    return Question(
        objectives=objectives_of(arguments.goodput),
        attainment=arguments.attainment,
        policies=tuple(arguments.policy or DEFAULT_POLICIES),
        limits=Limits(arguments.max_imbalance_ratio, arguments.max_comm_ratio),
        model_error_fraction=error,
        resamples=arguments.replications,
        seed=arguments.seed,
    )


def _workloads(arguments: argparse.Namespace) -> tuple[Workload, ...]:
    """The trace, and the others that replicate it."""
    files = (arguments.file, *arguments.replicate_with)
    return tuple(
        options.read_trace(argparse.Namespace(**{**vars(arguments), "file": file}))
        for file in files
    )


def _planned(
    arguments: argparse.Namespace,
    workloads: tuple[Workload, ...],
    hardware: Hardware,
    question: Question,
) -> Plan:
    """Plan under a bar."""
    from pointsman.plan.parallel import Workers
    from pointsman.plan.plan import How, make_plan
    from pointsman.sim.kernels import kernels_for

    bar = _Bar(_SIMULATIONS_A_SHAPE * len(workloads[0]))
    how = How(
        kinds=tuple(arguments.kind or KIND_NAMES),
        baseline=arguments.baseline,
        workers=Workers(arguments.jobs, arguments.cluster),
        resume=arguments.resume,
        on_start=bar.start,
        on_shape=bar.step,
    )
    progress.announce_compilation(kernels_for(question.policy_objects()))
    with bar.stack:
        return make_plan(workloads, hardware, question, how)


class _Bar:
    """A bar over shapes, whose number is known only when planning starts."""

    def __init__(self, requests: int) -> None:
        self.stack = ExitStack()
        self._requests = requests
        self._begin: Callable[[str], None] = lambda _: None

    def start(self, shapes: int) -> None:
        self._begin = self.stack.enter_context(progress.steps(shapes, self._requests))

    def step(self, label: str) -> None:
        self._begin(label)
