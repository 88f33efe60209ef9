"""What a design achieves: every metric, with the direction in which it is better, of one design or of many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from cosmic.design.prediction_accuracy import Range

OF_STEPS = {
    "step_s": "less",
    "ttft_s": "less",
    "tpot_s": "less",
    "tokens_per_s": "more",
    "mfu": "more",
    "hfu": "more",
    "memory_bytes": "less",
    "offloaded_bytes": "less",
    "cost_usd": "less",
    "network_usd": "less",
    "cost_usd_per_token": "less",
    "energy_j": "less",
    "perf_per_bandwidth": "more",
    "perf_per_network_cost": "more",
}
"""Every metric of a step that is one number, and which way it is better."""
OF_CLUSTERS = {"power_w": "less"}
"""The same of the machine."""
OF_RUNS = {
    "goodput": "more",
    "effective_tokens_per_s": "more",
    "train_days": "less",
    "train_usd": "less",
    "train_energy_j": "less",
    "train_co2_kg": "less",
}
"""The same of what only a training run has: interruptions, and a length. Steps of other tasks have none of it."""
OF_REQUESTS = {
    "ttft_p95_s": "less",
    "tpot_p95_s": "less",
    "goodput_per_s": "more",
    "tokens_per_s_per_npu": "more",
    "tokens_per_s_per_user": "more",
    "energy_j_per_token": "less",
}
"""The same of what only a design that serves a load has."""
OF_SAMPLES = {"samples_per_s": "more", "cost_usd_per_sample": "less"}
"""The same of models whose samples are no sequences of tokens: pictures, or rows of a table."""
OF_TOKENS = ("tokens_per_s", "cost_usd_per_token", "effective_tokens_per_s")
"""What such models lack."""
BETTER = OF_STEPS | OF_CLUSTERS | OF_RUNS | OF_REQUESTS | OF_SAMPLES
"""Every metric that is one number, and which way it is better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """What a design that can run achieves."""

    step_s: float
    """Seconds of a training step, of a prefill, or of one decoded token (for all sequences at once). Under a load, of a
    mean decode step."""
    ttft_s: float | None
    """Time to first token: of a prefill. Under a load, its mean over requests."""
    tpot_s: float | None
    """Time per output token: of decoding. Under a load, its mean over requests."""
    ttft_p95_s: float | None = None
    """Time to first token within which 95 % of requests are. Like the next five, of a design that serves a load."""
    tpot_p95_s: float | None = None
    """The same of the time per output token."""
    goodput_per_s: float | None = None
    """Requests a second within the limits of their class; None where no class has limits."""
    tokens_per_s_per_npu: float | None = None
    """Output tokens a second, for each accelerator of all pools."""
    tokens_per_s_per_user: float | None = None
    """Output tokens a second that one request gains while it decodes."""
    energy_j_per_token: float | None = None
    """Of all accelerators and the network, for an output token; None where no power is known."""
    tokens_per_s: float | None
    """Tokens of a step over its time. Under a load, output tokens of all requests. None of a model without tokens."""
    samples_per_s: float | None = None
    """Samples of a step over its time, of a model without tokens. Like the next one, None of all others."""
    cost_usd_per_sample: float | None = None
    """To own, while the step runs; None where price or power are not known."""
    mfu: float
    """Model FLOP utilisation: the flop of the model over the peak of the accelerators."""
    hfu: float
    """Hardware FLOP utilisation: recomputation counts as work."""
    memory_bytes: float
    memory: dict[str, float]
    memory_stage: int
    """Number of the pipeline stage whose accelerators need that much, from 0 on."""
    offloaded_bytes: float
    """Bytes offloaded to the outer tiers, for each accelerator."""
    memory_tiers: dict[str, dict[str, float]] = field(default_factory=dict)
    """By tier of memory: its capacity, what it holds of each class of state, and what crosses its link in a step; empty
    where all state is in HBM."""
    cost_usd: float | None
    """To buy: accelerators, hosts and network; None where a price is not known."""
    network_usd: float | None
    """To buy the network alone; None where a price of a part is not known."""
    cost_usd_per_token: float | None
    """To own: depreciation, power and upkeep, while the step runs; None where price or power are not known."""
    power_w: float | None
    """At the meter, all at its rated power: accelerators, hosts, network, and the building by its PUE; None where a
    power is not known."""
    energy_j: float | None
    """At the meter, of one step (under a load a mean decode step), by use: accelerators that wait draw less; None where
    a power is not known."""
    goodput: float | None = None
    """Share of the time of a training run that counts: interruptions, restarts and checkpoints take the rest. None
    where no rate of interruptions is known. Like the next five, of training."""
    effective_tokens_per_s: float | None = None
    """Tokens a second over a long run: throughput times goodput."""
    train_days: float | None = None
    """Days to train on the tokens of the run, interruptions included."""
    train_usd: float | None = None
    """Cost of owning the cluster for so long."""
    train_energy_j: float | None = None
    """Energy at the meter for so long."""
    train_co2_kg: float | None = None
    """Carbon dioxide of that energy, by the grid's factor."""
    perf_per_bandwidth: float | None
    """Steps a second for each byte/s that an accelerator can send into its network: COSMIC's first reward."""
    perf_per_network_cost: float | None
    """Steps a second for each dollar of the network: COSMIC's second."""
    breakdown: dict[str, float]
    """Seconds of the step by part; they sum to it. If simulated, of the rank that finishes last."""
    provenance: str
    """Origin of the accelerator's efficiencies: measured, calibrated, or an estimate."""
    expected_error: float | None
    """Mean relative error of the step that validation found for designs like this one; None where none was measured."""
    expected_on: str
    """How many measured runs it rests on, and what they share with the design."""
    step_s_range: Range
    """What the step is expected to take when measured: quantiles, of which the median is the prediction."""
    tokens_per_s_range: Range | None
    """The same of the throughput in tokens."""
    samples_per_s_range: Range | None = None
    """The same of that in samples."""
    unknown: dict[str, str]
    """Metrics that are unknown, each with the reason."""

    @property
    def counted(self) -> str:
        """What throughput counts: tokens or samples."""
        return "samples" if self.tokens_per_s is None else "tokens"

    @property
    def throughput_per_s(self) -> float:
        """Tokens a second; of a model without tokens, samples."""
        per_s = self.samples_per_s if self.tokens_per_s is None else self.tokens_per_s
        assert per_s is not None  # noqa: S101  a design has one of them
        return per_s


@dataclass(frozen=True, slots=True)
class Infeasible:
    """A well-formed design that cannot run, and why."""

    reasons: tuple[str, ...]


Outcome = Metrics | Infeasible


@dataclass(frozen=True, slots=True)
class BatchOutcome:
    """What many designs achieve: an array for each metric, and which of them can run."""

    columns: dict[str, npt.NDArray[np.float64]]
    """Each metric of `BETTER`, and ``memory.*`` and ``breakdown.*``; NaN where a task has no such metric, or where it
    is unknown (`unknown_metrics`)."""
    broken: dict[str, npt.NDArray[np.bool_]]
    """For each rule that some design breaks, which do: those of `cosmic.workload.mapping_rules`, ``memory``,
    ``offloaded``,
    and ``range`` where a metric would be no possible number."""
    excess: npt.NDArray[np.float64]
    """By what share a design needs more memory than there is; infinite where its mapping is invalid."""

    @property
    def feasible(self) -> npt.NDArray[np.bool_]:
        """Which of the designs can run."""
        return np.asarray(self.excess == 0)

    @property
    def throughput_per_s(self) -> npt.NDArray[np.float64]:
        """Tokens a second of each design; of a model without tokens, samples."""
        return throughput(self.columns)


def throughput(columns: Mapping[str, npt.NDArray[np.float64]]) -> npt.NDArray[np.float64]:
    """Return tokens a second; of models without tokens, samples."""
    tokens = columns["tokens_per_s"]
    return np.where(np.isnan(tokens), columns.get("samples_per_s", tokens), tokens)
