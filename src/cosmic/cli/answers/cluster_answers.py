"""What commands on clusters print with `--json`: sizing, fleets of jobs, tasks that share accelerators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypedDict

from cosmic.base.json_types import Count, Fraction, NonNegative, NonNegativeRatio, PositiveCount, Ratio, one_of, unit
from cosmic.cli.answers.common_keys import (
    EffectiveTokenRate,
    GoodputShare,
    MeterPower,
    ModelFlopUtilization,
    NetworkPrice,
    PurchasePrice,
    SampleRate,
    TokenRate,
    TrainingCarbon,
    TrainingCost,
    TrainingDays,
    TrainingEnergy,
)
from cosmic.cluster.fleet_jobs import SharingRules
from cosmic.cluster.fleet_result import OBJECTIVES, GangResult, Occupancy, RefusedJob
from cosmic.search.cluster_sizing import Counted, DaysToTrain, Effect
from cosmic.search.multitask import SharedAccelerators


class SizingQuestion(TypedDict):
    """What was asked; null where nothing is said."""

    model: str
    """The model."""
    tokens: Annotated[float, unit("tokens")]
    """Tokens to train on."""
    budget_usd: float | None
    """To buy the cluster with."""
    power_w: float | None
    """Most power at the meter."""
    accelerators: int | None
    """Most accelerators."""
    deadline_days: float | None
    """By when the model must be trained."""
    objective: str
    """What is made small."""


class SizedSystemRow(TypedDict):
    """The best of one system."""

    system: str
    """System of the catalog."""
    accelerators: PositiveCount
    """How many."""
    train_days: TrainingDays
    goodput: GoodputShare
    cost_usd: PurchasePrice
    power_w: MeterPower
    train_usd: TrainingCost
    train_energy_j: TrainingEnergy
    train_co2_kg: TrainingCarbon
    network_usd: NetworkPrice
    mfu: ModelFlopUtilization
    tokens_per_s: TokenRate
    samples_per_s: SampleRate
    effective_tokens_per_s: EffectiveTokenRate
    bound_by: str
    """The limit that allows no more: budget, power or accelerators; or why no more are wanted: deadline, or larger is
    no better."""
    train_days_failures: DaysToTrain | None
    """Spread by chance of failures, simulated; null where the days are not known."""
    train_days_steps: DaysToTrain | None
    """Spread by the error of predicted steps; null where the days are not known."""
    design: Mapping[str, Any]
    """The design, as a design file has it."""


class TriedSizeRow(TypedDict):
    """A size that was tried, with its best mapping."""

    system: str
    """System of the catalog."""
    accelerators: PositiveCount
    """How many."""
    train_days: TrainingDays
    cost_usd: PurchasePrice
    power_w: MeterPower
    train_usd: TrainingCost


class SizeAnswer(TypedDict):
    """What to buy of each system, best first."""

    question: SizingQuestion
    rows: Sequence[SizedSystemRow]
    """The best of each system."""
    refused: Mapping[str, str]
    """Systems without an answer, each with the reason."""
    tried: Sequence[TriedSizeRow]
    """Every size that was tried, with its best mapping."""
    enumerated: Counted
    """What was gone through."""
    sensitivity: Sequence[Effect]
    """What a tenth more of each input does to the best row, as shares."""


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
