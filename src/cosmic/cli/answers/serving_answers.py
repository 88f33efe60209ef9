"""What `cosmic serve` prints with `--json`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, NotRequired, TypedDict

from cosmic.base.json_types import (
    AlwaysFalse,
    AlwaysTrue,
    AnyOf,
    Count,
    Keywords,
    PositiveCount,
    Ratio,
    Share,
    described,
    one_of,
    unit,
)
from cosmic.cli.answers.common_keys import Identity, Reasons
from cosmic.serving.serving_accuracy import ServingErrors

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


ServeAnswer = Annotated[
    AnyOf[UnservableDeploymentAnswer, ServedDeploymentAnswer, DeploymentSearchAnswer],
    described("What a deployment achieves under a load of requests; with --search, which deployment is the cheapest."),
]
