"""What commands on clusters, deployments and measurements print with `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NotRequired, TypedDict

from cosmic.accuracy.calibrate.calibration import Errors, JudgedMeasurement
from cosmic.accuracy.validating import Coverage
from cosmic.base.json_types import (
    AnyOf,
    Count,
    Fraction,
    NonNegative,
    NonNegativeRatio,
    PositiveCount,
    Ratio,
    Share,
    described,
    one_of,
    unit,
)
from cosmic.cli.answers.common_keys import CountsByName
from cosmic.cluster.fleet_jobs import OBJECTIVES, GangResult, Occupancy, RefusedJob, SharingRules
from cosmic.design.prediction_accuracy import Range
from cosmic.search.advice.deployment_plan import Plan
from cosmic.search.advice.serving_answers import ServedDeploymentAnswer, UnservableDeploymentAnswer
from cosmic.search.fleet import SharedAccelerators


class FleetJobRow(TypedDict):
    """One job."""

    name: str
    """Its name."""
    arrival_s: NonNegative
    """When it came."""
    start_s: NonNegative
    """When it began."""
    end_s: NonNegative
    """When it ended."""
    wait_s: NonNegative
    """How long it waited."""
    run_s: NonNegative
    """How long it ran, or took turns."""
    slowdown: NonNegativeRatio
    """Time from arrival to end, over what it takes alone on the empty cluster."""
    npus: PositiveCount
    """Accelerators that it used."""
    accelerators: Sequence[tuple[Count, Count]]
    """Where they lie: the first, and the one after the last, of each range."""
    steps: NonNegativeRatio
    """Its steps."""
    alone_s: NonNegative
    """How long it takes alone on the empty cluster, on the most accelerators that it may have."""
    alone_step_s: NonNegative
    """From one step to the next, alone on as many accelerators as it had."""
    step_s: NonNegative
    """The same here, on average."""
    device_s: NonNegative
    """How long its accelerators ran it: in space all the time, in time its turns."""
    tokens_per_s: NonNegative
    """Tokens of its steps over the time that it ran; samples, of a model without a sequence."""
    share: NonNegativeRatio
    """Weight of its device time."""
    priority: int
    """Its priority."""
    memory_bytes: NonNegative
    """Memory that it needs of an accelerator."""
    mapping: str
    """Its degrees of parallelism, such as tp4 dp8."""
    waited_for: Literal["", "accelerators", "jobs before it", "memory", "a turn"]
    """What it waited for; empty if it began at once."""


class FleetCandidateRow(TypedDict):
    """What some rules gave."""

    rules: SharingRules
    makespan_s: NonNegative
    """From the first arrival to the last end."""
    utilization: Fraction
    """Accelerator-seconds in which jobs ran, over all of the makespan."""
    mean_slowdown: Ratio | None
    """Mean over jobs of the time from arrival to end, over what the job takes alone; null if none ran."""
    max_slowdown: Ratio | None
    """The most of it."""
    fairness: Ratio | None
    """Jain's index of speeds over shares: 1 if all jobs are slowed in proportion."""


class FleetAnswer(FleetCandidateRow):
    """Several jobs on one cluster: when and where each runs, and what sharing costs it."""

    system: str
    """The cluster."""
    npus: PositiveCount
    """Accelerators of the cluster."""
    leaf: PositiveCount
    """Accelerators below one leaf switch."""
    jobs: Sequence[FleetJobRow]
    """The jobs that ran."""
    refused: Sequence[RefusedJob]
    """Jobs that can never run here."""
    gangs: Sequence[GangResult]
    """In time: each gang when it had the most tenants, its turns played one by one."""
    timeline: Sequence[Occupancy]
    """Who had which accelerators when, in the order of their beginning."""
    objective: Annotated[str | None, one_of(*OBJECTIVES, None)]
    """What is best, with --search; else null."""
    candidates: Sequence[FleetCandidateRow]
    """With --search: all rules that were tried, best first."""


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


MeasurementKind = Annotated[
    str,
    described("What was measured: steps, GEMMs, attention, memory operators, launches, collectives, kernels of steps."),
]


class FieldCorrection(TypedDict):
    """Values by path."""

    before: Annotated[float, unit("SI")]
    """Value before, in SI units."""
    after: Annotated[float, unit("SI")]
    """Value now, in SI units."""


class LearnedParameter(TypedDict):
    """A parameter that the measurements changed."""

    name: str
    """Name of the parameter."""
    title: str
    """What it is."""
    factor: Ratio
    """Its value over the usual one."""
    prior_sd: Ratio
    """Standard deviation of its logarithm before."""
    posterior_sd: Ratio
    """The same with the measurements."""
    by: Sequence[str]
    """Measurements that moved it most."""
    fields: Mapping[str, FieldCorrection]
    """Fields of a design that it changes."""


class UnlearnedParameter(TypedDict):
    """A parameter that keeps its value."""

    title: str
    """What the parameter is."""
    why: str
    """Why it was not learned."""


class CalibrateAnswer(TypedDict):
    """What measurements say about a system."""

    system: str
    """The system that was calibrated; empty for the hardware of a design file."""
    files: Sequence[str]
    """Names of the files of measurements."""
    rows: Sequence[JudgedMeasurement]
    """Every measurement."""
    errors: Sequence[Errors]
    """Mean absolute relative errors by kind of measurement."""
    prior_scale: Ratio
    """How many times wider than usual priors were taken, as the measurements are far off."""
    learned: Sequence[LearnedParameter]
    """Parameters that changed."""
    not_learned: Sequence[UnlearnedParameter]
    """Parameters that keep their value."""
    time_factor: Ratio
    """A factor of all times of a step; 1 where leaving steps out does not speak for it."""
    time_factor_why: str
    """Why it is that."""
    residual_log_sd: Ratio | None
    """Standard deviation of the logarithm of measured over predicted steps, from now on; null without a step."""
    steps: Count
    """Measured steps behind it."""
    skipped: Sequence[str]
    """Rows that were left out, a sentence each."""


class ValidationErrors(TypedDict):
    """One value of the column of --by, which is the one further key."""

    rows: Count
    """Measured rows."""
    predicted: Count
    """How many of them were predicted."""
    coverage: Share
    """The same as a share."""
    mean_abs_error: Share | None
    """Mean absolute relative error."""
    median_abs_error: Share | None
    """Median absolute relative error."""
    worst_abs_error: Share | None
    """The largest absolute relative error."""
    bias: Share | None
    """Mean relative error with its sign."""
    ranged: Count
    """Rows whose prediction has a range."""
    in_range: Share | None
    """Share of those whose measured time is from P5 to P95; null if there are none."""
    range_width: Share | None
    """Mean distance of P95 from the prediction."""
    mean_abs_error_left_out: Share | None
    """Mean absolute relative error by constants that were fitted without the row's source; null if no row has one."""
    median_abs_error_left_out: Share | None
    """The median of the same."""
    kendall_tau: Ratio | None
    """Kendall's τ of the order of rows, from -1 to 1; null if there is no order."""
    pairs: Count
    """Pairs of rows that have an order."""
    kendall_tau_clear: Ratio | None
    """The same over pairs whose measured times differ by more than 5 %."""
    pairs_clear: Count
    """The number of such pairs."""
    skipped: CountsByName
    """Rows that were not predicted, by reason."""


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
    summary: Sequence[ValidationErrors]
    """Errors of time."""
    memory_summary: Sequence[ValidationErrors]
    """Errors of peak memory."""
    coverage: Coverage | None
    """How many measured times are from P5 to P95 of their prediction; null where no prediction has a range."""


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
