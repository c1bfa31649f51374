"""Shapes over processes: joblib here, Ray's joblib backend on a cluster.

What all shapes share is written once and mapped into every process here; a cluster's machines get
it with each batch of shapes, for they may share no folder.
"""

from __future__ import annotations

import os
import signal
import tempfile
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from pointsman.core.errors import InputError, MachineError, wrong_value
from pointsman.plan.candidate import Setup, ShapeResult, candidate_of
from pointsman.plan.shapes import Shape
from pointsman.workload.workload import Names, Workload

RAY = "ray://"
LOCAL_RAY = "ray://local"


@dataclass(frozen=True, slots=True)
class Workers:
    """How many processes (None: as many as there are cores), and on which cluster."""

    jobs: int | None = None
    cluster: str | None = None

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise wrong_value("plan", "jobs", self.jobs, "an integer >= 1")
        if self.cluster is not None and not self.cluster.startswith(RAY):
            wanted = f"{RAY}HOST:PORT, {RAY}auto or {LOCAL_RAY}"
            raise wrong_value("plan", "cluster", self.cluster, wanted)

    @property
    def processes(self) -> int:
        """Processes on this machine."""
        return self.jobs or len(os.sched_getaffinity(0))


def candidates(setup: Setup, shapes: Sequence[Shape], workers: Workers) -> Iterator[ShapeResult]:
    """The results of all shapes as they are done, in any order."""
    if workers.cluster is not None:
        yield from _on_ray(setup, shapes, workers)
    elif workers.processes == 1 or len(shapes) < 2:
        yield from (candidate_of(setup, shape) for shape in shapes)
    else:
        yield from _in_processes(setup, shapes, workers.processes)


def _in_processes(setup: Setup, shapes: Sequence[Shape], jobs: int) -> Iterator[ShapeResult]:
    import joblib

    with tempfile.TemporaryDirectory(prefix="pointsman-plan-") as folder:
        path = str(Path(folder) / "setup")
        joblib.dump(_without_names(setup), path)
        parallel = joblib.Parallel(
            n_jobs=min(jobs, len(shapes)), batch_size=1, return_as="generator_unordered"
        )
        ordered = _hard_first(shapes)
        yield from _guarded(parallel(joblib.delayed(_from_file)(path, shape) for shape in ordered))


def _guarded(results: Generator[ShapeResult]) -> Iterator[ShapeResult]:
    """The results; one clear error where a process dies, and none of joblib's warnings that an
    interruption leaves tasks undone."""
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    try:
        while True:
            with _without_warnings():
                result = next(results, None)
            if result is None:
                return
            yield result
    except TerminatedWorkerError:
        raise MachineError(
            "plan: one of its processes was ended from outside, or for lack of memory; try fewer"
            " --jobs, and --resume FILE, which keeps what is finished"
        ) from None
    finally:
        with _without_warnings():
            results.close()


@contextmanager
def _without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning)
        yield


def _from_file(path: str, shape: Shape) -> ShapeResult:
    return candidate_of(_mapped(path), shape)


@lru_cache(maxsize=1)
def _mapped(path: str) -> Setup:
    """The shared setup; its columns are pages of the file until somebody writes to them.

    An interruption from the terminal reaches all processes; only the first one is to speak.
    """
    import joblib

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    setup: Setup = joblib.load(path, mmap_mode="c")
    return _with_plain(setup)


def _with_plain(setup: Setup) -> Setup:
    return replace(setup, workloads=tuple(map(_plain, setup.workloads)))


def _plain(workload: Workload) -> Workload:
    """The columns as plain arrays that can be written to, which is what compiled code takes; those
    that are such already are not copied."""
    columns: dict[str, Any] = {
        name: np.require(value, requirements=("E", "W"))
        for name in Workload.__dataclass_fields__
        if isinstance(value := getattr(workload, name), np.ndarray)
    }
    return replace(workload, **columns)


def _without_names(setup: Setup) -> Setup:
    workloads = tuple(replace(workload, names=Names()) for workload in setup.workloads)
    return replace(setup, workloads=workloads)


def _hard_first(shapes: Sequence[Shape]) -> list[Shape]:
    """The many small replicas first: what takes longest is not left for the end."""
    return sorted(shapes, key=lambda shape: -shape.replicas)


def _on_ray(setup: Setup, shapes: Sequence[Shape], workers: Workers) -> Iterator[ShapeResult]:
    """In waves, so that what is done is known before all is: the backend returns lists only."""
    import joblib

    ray = _ray()
    assert workers.cluster is not None
    try:
        if workers.cluster == LOCAL_RAY:
            ray.init(num_cpus=workers.processes, include_dashboard=False, log_to_driver=False)
        else:
            address = "auto" if workers.cluster == f"{RAY}auto" else workers.cluster
            ray.init(address=address, log_to_driver=False)
    except (ConnectionError, OSError, RuntimeError) as error:
        raise MachineError(f"plan: no Ray cluster at {workers.cluster}: {error}") from error
    try:
        shared = ray.put(_without_names(setup))
        count = workers.jobs or int(ray.cluster_resources().get("CPU", 1))
        with joblib.parallel_config(backend="ray", n_jobs=count):
            ordered = _hard_first(shapes)
            for first in range(0, len(ordered), 4 * count):
                wave = ordered[first : first + 4 * count]
                yield from joblib.Parallel(batch_size=1)(
                    joblib.delayed(_from_ray)(shared, shape) for shape in wave
                )
    finally:
        ray.shutdown()


def _from_ray(shared: Any, shape: Shape) -> ShapeResult:
    setup: Setup = _ray().get(shared)
    return candidate_of(_with_plain(setup), shape)


def _ray() -> Any:
    try:
        import ray
        from ray.util.joblib import register_ray
    except ImportError:
        raise InputError(
            "plan: --cluster needs Ray, which is not installed; expected"
            " pip install 'pointsman[ray]'"
        ) from None
    register_ray()
    return ray
