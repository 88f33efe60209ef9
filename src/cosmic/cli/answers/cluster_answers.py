"""What commands on clusters, deployments and measurements print with `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, NotRequired, TypedDict

from cosmic.accuracy.validating import Coverage, FitOutcomes, Summary
from cosmic.base.json_types import (
    AnyOf,
    Count,
    PositiveCount,
    Share,
    described,
    unit,
)
from cosmic.design.prediction_accuracy import Range
from cosmic.search.advice.deployment_plan import Plan
from cosmic.search.advice.serving_answers import ServedDeploymentAnswer, UnservableDeploymentAnswer
from cosmic.search.fleet import SharedAccelerators


class UnshareableAccelerators(TypedDict):
    """A number of accelerators."""

    npus: PositiveCount
    """Accelerators in all."""
    reasons: Sequence[str]
    """Why the tasks cannot run."""


class ClusterTasksAnswer(TypedDict):
    """Accelerators shared out among the tasks of one training run."""

    design: str
    """The model and the system."""
    shared: Sequence[SharedAccelerators]
    """One for each number of accelerators on which the tasks run."""
    infeasible: Sequence[UnshareableAccelerators]
    """The numbers of accelerators on which they cannot run."""


ServeAnswer = Annotated[
    AnyOf[UnservableDeploymentAnswer, ServedDeploymentAnswer, Plan],
    described("What a deployment achieves under a load of requests; with --search, which deployment is the cheapest."),
]


class PredictedRow(TypedDict):
    """A row that was predicted."""

    id: str
    """Identifier of the row in its file."""
    set: str
    """The source of the row."""
    measured_s: float | None
    """Measured time."""
    predicted_s: float | None
    """Predicted time."""
    relative_error: Share | None
    """Predicted over measured, minus 1."""
    predicted_s_range: NotRequired[Annotated[Range, unit("s")]]
    """What is expected to be measured; only of whole steps of a design."""
    in_range: NotRequired[bool]
    """Whether the measured time is from P5 to P95."""
    left_out_error: NotRequired[Share]
    """Relative error by constants that were fitted without the row's source; only of rows of the package."""
    assumed: Sequence[str]
    """What was assumed, a sentence each."""
    low_s: NotRequired[float]
    """Shortest time of the choices that the row leaves open, where it does."""
    high_s: NotRequired[float]
    """Longest time of those that are nearly the fastest."""
    memory_kind: NotRequired[str]
    """What the figure of memory counts: allocated, reserved, or what the device shows."""
    peak_bytes_range: NotRequired[Annotated[Range, unit("B")]]
    """What was expected of it."""
    ran: NotRequired[bool]
    """Whether the run ran, or ran out of memory, where the row says so."""
    fits: NotRequired[Share]
    """The predicted probability that it fits."""
    peak_bytes_measured: NotRequired[Annotated[float, unit("B")]]
    """Measured peak memory, where it was measured."""
    peak_bytes_predicted: NotRequired[Annotated[float, unit("B")]]
    """Predicted peak memory."""
    memory_error: NotRequired[Share]
    """Predicted peak over measured, minus 1."""


class SkippedRow(TypedDict):
    """A row that was not predicted."""

    id: str
    """Identifier of the row in its file."""
    set: str
    """The source of the row."""
    skipped: str
    """Why it was not predicted."""


class ValidateAnswer(TypedDict):
    """Measured rows and their predictions."""

    rows: Sequence[AnyOf[PredictedRow, SkippedRow]]
    """Every measured row."""
    summary: Sequence[Summary]
    """Errors of time."""
    memory_summary: Sequence[Summary]
    """Errors of peak memory."""
    coverage: Coverage | None
    """How many measured times are from P5 to P95 of their prediction; null where no prediction has a range."""
    fits: FitOutcomes | None
    """Runs that ran, or ran out of memory, beside the probability that they fit; null where no row says so."""


class ProbeAnswer(TypedDict):
    """Measurements of the machine that the command ran on."""

    device: str
    """Name of the accelerator."""
    rows: Sequence[Mapping[str, Annotated[str | float, unit("as its column says")]]]
    """Every measurement, with the columns of the file that it fills; `kind` says which."""
    left: Count
    """Measurements that there was no time for."""
    failed: Sequence[str]
    """Measurements that the device refused, a sentence each."""
