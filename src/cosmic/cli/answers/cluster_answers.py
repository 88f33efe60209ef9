"""What commands on clusters, deployments and measurements print with `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NotRequired, TypedDict

from cosmic.accuracy.calibrate.calibration import Errors, JudgedMeasurement
from cosmic.accuracy.validating import Coverage
from cosmic.base.json_types import (
    AlwaysFalse,
    AlwaysTrue,
    AnyOf,
    Count,
    Fraction,
    Keywords,
    NonNegative,
    NonNegativeRatio,
    PositiveCount,
    Ratio,
    Share,
    described,
    one_of,
    unit,
)
from cosmic.cli.answers.common_keys import CountsByName, Identity, Reasons
from cosmic.cluster.fleet_jobs import OBJECTIVES, GangResult, Occupancy, RefusedJob, SharingRules
from cosmic.design.answer import Answer
from cosmic.design.prediction_accuracy import Range
from cosmic.search.fleet import SharedAccelerators
from cosmic.serving.serving_accuracy import ServingErrors


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


AssumedFields = Annotated[Sequence[str], described("What was assumed as nobody said it, a sentence each.")]


class RequestLoadAnswer(TypedDict):
    """The load of requests."""

    input: Annotated[float, unit("tokens")]
    """Mean tokens of a prompt."""
    output: Annotated[float, unit("tokens")]
    """Mean tokens of an answer."""
    concurrency: int | None
    """Requests in flight; null in an open loop."""
    rate: Annotated[float | None, unit("1/s")]
    """Requests a second; null in a closed loop."""


class ServingPoolAnswer(TypedDict):
    """Equal engine instances."""

    instances: PositiveCount
    """Their number."""
    npus: PositiveCount
    """Accelerators of all of them."""
    tp: PositiveCount
    """Tensor parallelism of an instance."""
    pp: PositiveCount
    """Pipeline stages of an instance."""
    attention_dp: PositiveCount
    """Attention data parallelism of an instance."""
    ep: PositiveCount
    """Expert parallelism of an instance."""


class DeploymentAnswer(TypedDict):
    """The deployment."""

    npus: PositiveCount
    """Accelerators."""
    engine: str
    """The serving engine."""
    precision: str
    """Number format of the weights."""
    pool: ServingPoolAnswer
    """Instances that do all, or those that decode."""
    prefill: ServingPoolAnswer | None
    """Instances that only prefill; null in one pool."""


class LatencyLimitRow(TypedDict):
    """A limit that was asked for."""

    metric: Annotated[str, one_of("ttft", "tpot", "e2e")]
    """What it is on."""
    statistic: Annotated[str, one_of("mean", "p50", "p95", "p99")]
    """Which statistic over requests."""
    limit_s: float
    """The limit."""


class JudgedLimitRow(LatencyLimitRow):
    """A limit, and what a deployment achieves."""

    value_s: float | None
    """What it is; null where there is no such time."""
    holds: bool
    """Whether it holds."""
    simulated_s: NotRequired[float | None]
    """What it is in the simulation; null where there was none."""
    within_error: bool
    """Whether the value is nearer to the limit than the expected error."""


class RequestTimes(TypedDict):
    """A time that clients see, over requests."""

    mean_s: float | None
    """Its mean over requests."""
    p50_s: float | None
    """Half of the requests are below."""
    p95_s: float | None
    """95 % of them are."""
    p99_s: float | None
    """99 % of them are."""


class RequestMetrics(TypedDict):
    """What clients see, and what it costs."""

    ttft: RequestTimes
    """Time to first token."""
    tpot: RequestTimes
    """Time per output token after the first, of each request its mean."""
    e2e: RequestTimes
    """From a request's arrival to its last token."""
    requests_per_s: float
    """Requests that end."""
    output_tokens_per_s: float
    """Output tokens of all requests."""
    tokens_per_s_per_npu: Annotated[float, unit("tokens/s")]
    """Output tokens, for each accelerator."""
    tokens_per_s_per_user: Annotated[float | None, unit("tokens/s")]
    """Output tokens of one request while it decodes; null where it has one token."""
    goodput_per_s: float | None
    """Requests within the limits; null where there are none."""
    within_slo: Share | None
    """Share of requests within the limits; null where there are none."""
    running: Ratio
    """Requests that run at once."""
    waiting: Ratio
    """Requests that wait to be admitted."""
    utilisation: Mapping[str, Share]
    """Share of time that each pool is busy: all, or prefill and decode."""
    kv_use: Share
    """Share of the KV cache in use."""
    prefill_share: float
    """Share of the steps' time that prefills take."""
    usd_per_million_tokens: Annotated[float | None, unit("USD")]
    """To own and power the machine, for a million output tokens; null where price or power are not known."""
    j_per_million_tokens: Annotated[float | None, unit("J")]
    """Energy of a million output tokens; null where the power is not known."""
    decode_breakdown: Mapping[str, Annotated[float, unit("s")]]
    """A mean decode step by part."""
    ttft_breakdown: Mapping[str, Annotated[float, unit("s")]]
    """Mean TTFT by part."""


class CandidateDeployment(TypedDict):
    """A deployment that was compared."""

    npus: PositiveCount
    """Accelerators."""
    pool: ServingPoolAnswer
    """Instances that do all, or those that decode."""
    prefill: ServingPoolAnswer | None
    """Instances that only prefill; null in one pool."""
    max_num_batched_tokens: int | None
    """Most tokens of a step; null where the engine's own."""
    concurrency: int | None
    """Requests in flight; null in an open loop."""
    rate: Annotated[float | None, unit("1/s")]
    """Requests a second; null in a closed loop."""
    holds: bool
    """Whether all limits hold."""
    metrics: RequestMetrics


class CheckedDeployment(TypedDict):
    """A deployment as it would be built."""

    identity: Identity
    deployment: CandidateDeployment
    holds: bool
    """Whether all limits hold, in the simulation too where there was one."""
    simulated: RequestMetrics | None
    """Of the whole deployment; null where it cannot serve the requests."""
    simulated_share: Annotated[float, Keywords(maximum=1, exclusiveMinimum=0)]
    """Share of its instances that was simulated, in the ratio of its pools, with their share of the load."""
    limits: Sequence[JudgedLimitRow]
    """The limits that were asked for."""
    expected_error: ServingErrors | None
    """How far off times are expected to be: mean errors of published runs of this kind; null where there were none."""


class SmallestDeployment(TypedDict):
    """The fewest accelerators with which a deployment could serve."""

    npus: PositiveCount
    """Accelerators of a machine that there is."""
    pool: ServingPoolAnswer
    within_limits: bool
    """Whether the limits hold there, not the load alone."""
    as_mapped: bool
    """Whether its instances have the mapping that was stated."""


class ServiceKeys(TypedDict):
    """A deployment and its load."""

    identity: Identity
    deployment: DeploymentAnswer
    load: RequestLoadAnswer
    assumed: AssumedFields
    searched: Count
    """Mappings of which this is the best; 0 where the mapping was stated."""


class UnservableDeploymentAnswer(ServiceKeys):
    """A deployment that cannot serve the load; the command ends with exit code 1."""

    feasible: AlwaysFalse
    """Whether it can serve."""
    reasons: Annotated[Reasons, Keywords(minItems=1)]
    """Why it cannot, a sentence each."""
    fewest_npus: PositiveCount | None
    """The fewest accelerators with which it could; null where none are enough."""
    fewest: SmallestDeployment | None
    """The same as a deployment in one pool, in closed form; null where none are enough."""
    answer: Answer


class ServingAdvice(TypedDict):
    """One change."""

    kind: Annotated[str, one_of("action", "purchase")]
    """Something that an operator does, or something to buy."""
    what: str
    """What changes."""
    gain: Ratio
    """Times as many tokens a second; at a stated rate, times as soon at the last token."""
    gain_of: Annotated[str, one_of("tokens/s", "end to end")]
    """What the gain is of."""
    simulated_gain: Ratio | None
    """The same as simulated; null where it was not."""
    simulated: RequestMetrics | None
    """What the simulation says; of the first change alone, where it does not take long."""
    holds: bool
    """Whether all limits hold with it."""
    condition: str
    """When it is open, such as 'if accuracy allows'; empty if always."""
    metrics: RequestMetrics
    command: str
    """The command that serves so, quoted for a shell."""


class ServedDeploymentAnswer(ServiceKeys):
    """A deployment that serves the load."""

    feasible: AlwaysTrue
    """Whether it can serve."""
    reasons: Annotated[Reasons, Keywords(maxItems=0)]
    """Why the design cannot run, a sentence each; empty if it can."""
    limits: Sequence[JudgedLimitRow]
    """The limits that were asked for or that the file has; of the simulation where that was asked for."""
    expected_error: ServingErrors | None
    """How far off times are expected to be: mean errors of published runs of this kind; null where there were none."""
    metrics: RequestMetrics
    simulated: RequestMetrics | None
    """The same by the simulation of requests; null where there was none, as with very many clients."""
    differences: Mapping[str, Ratio]
    """Simulated over closed form, for each metric in which they differ by more than 10 %."""
    improvements: Sequence[ServingAdvice]
    """What would help: actions before purchases, each best first."""
    answer: Answer


class ComparedInstanceKinds(TypedDict):
    """Kinds of instances that were compared."""

    aggregated: Count
    """Shapes of an instance and limits of its steps."""
    disaggregated: Count
    """Pairs of shapes."""


class DeploymentSearchAnswer(TypedDict):
    """With --search. Where no deployment holds the limits, the command ends with exit code 1."""

    feasible: bool
    """Whether some deployment holds the limits at the load."""
    reasons: Reasons
    """Why none does, a sentence each; empty if one does."""
    load: RequestLoadAnswer
    assumed: AssumedFields
    limits: Sequence[LatencyLimitRow]
    """The limits that were asked for."""
    front: Sequence[CandidateDeployment]
    """The Pareto front, slowest users first: no deployment has more tokens/s for an accelerator and for a user."""
    aggregated: CandidateDeployment | None
    """The cheapest deployment whose instances do both prefill and decode; null if none holds the limits."""
    disaggregated: CandidateDeployment | None
    """The cheapest with instances for prefill and others for decode; null if none holds the limits."""
    held: Mapping[str, PositiveCount]
    """Fields of an instance's mapping that the file or --set states: only such instances in one pool are compared."""
    chosen: CheckedDeployment | None
    """The cheapest deployment that holds the limits as it would be built."""
    checked: Sequence[CheckedDeployment]
    """Deployments as they would be built that were simulated: those that hold first, then the smallest."""
    needed_npus: PositiveCount | None
    """The fewest accelerators of a machine that hold the limits: simulated, in closed form where nothing was; null if
    none do."""
    untried: tuple[PositiveCount, PositiveCount] | None
    """The largest machine that failed and the one chosen, where not all sizes between them were tried; null where all
    were."""
    kinds: ComparedInstanceKinds
    priced: Count
    """Deployments that were priced."""
    exhaustive: bool
    """Whether all kinds that fit were compared."""
    seconds: float
    """Time that the search took."""
    answer: Answer


ServeAnswer = Annotated[
    AnyOf[UnservableDeploymentAnswer, ServedDeploymentAnswer, DeploymentSearchAnswer],
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
