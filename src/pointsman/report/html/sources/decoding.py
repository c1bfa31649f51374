"""Documents as typed values; a field that is not as it should be is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from pointsman.core.errors import InputError
from pointsman.metrics.distribution import QUANTILE_LEVELS
from pointsman.metrics.latency import Spread
from pointsman.report.html.result import Audit, Latency

T = TypeVar("T")

AtLeastOne = Annotated[tuple[T, ...], msgspec.Meta(min_length=1)]

Quantiles = dict[str, tuple[float, ...] | None]


class WorkloadFacts(msgspec.Struct, frozen=True):
    """Which requests a result is of."""

    source: str
    format: str
    sha256: str | None
    requests: int
    span_ms: float

    @property
    def identity(self) -> str:
        """Equal where the requests are."""
        return self.sha256 or self.source

    @property
    def offered_rps(self) -> float | None:
        """The gaps between arrivals over their span, as ``plan`` counts; None for no span."""
        return (self.requests - 1) * 1000.0 / self.span_ms if self.span_ms else None


class AuditFacts(msgspec.Struct, frozen=True):
    """How long choices for locality waited."""

    choices: int
    bound_ms: float | None
    expected_extra_ms: Spread
    realised_extra_ms: Spread
    over_bound: int
    over_bound_fraction: float

    @property
    def audit(self) -> Audit:
        """As views take it."""
        return Audit(
            self.choices,
            self.bound_ms,
            self.expected_extra_ms,
            self.realised_extra_ms,
            self.over_bound,
            self.over_bound_fraction,
        )


class Advice(msgspec.Struct, frozen=True):
    """What to take."""

    sentence: str


def decoded(document: Any, kind: type[T], where: str) -> T:
    """A document as ``kind``. Raises InputError naming the file and the field that is wrong."""
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise InputError(
            f"{where}: {error}; expected a result as this version of pointsman writes it"
        ) from None


def fleet_identity(document: dict[str, Any]) -> str:
    """A text that is equal where fleets and what surrounds them are; draws apart."""
    fleet = {name: value for name, value in document["fleet"].items() if name != "seed"}
    return msgspec.json.encode(fleet, order="sorted").decode()


def latency(spread: Spread, quantiles: Quantiles, name: str) -> Latency:
    """A spread with its distribution, where the document has one of the levels known here."""
    values = quantiles.get(name)
    if values is not None and len(values) != len(QUANTILE_LEVELS):
        values = None
    return Latency(spread, values)


def short_names(labels: Sequence[tuple[str, str]]) -> list[str]:
    """Of (policy, label with its parameters) the policy alone where no other one has its name."""
    policies = [policy for policy, _ in labels]
    return [policy if policies.count(policy) == 1 else label for policy, label in labels]


def workload_basis(workload: WorkloadFacts) -> list[tuple[str, str]]:
    """The requests and where they are from."""
    digest = "" if workload.sha256 is None else f", SHA-256 {workload.sha256[:12]}"
    seconds = workload.span_ms / 1000.0
    return [
        ("Requests", f"{workload.requests:,} over {seconds:,.4g} s"),
        ("Workload", f"{workload.source} ({workload.format}{digest})"),
    ]


def stated(fraction: float) -> str:
    """A share that somebody chose, with all its digits: 99.95% is not 100%."""
    return f"{100 * fraction:.6g}%"
