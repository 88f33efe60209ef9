"""What a design achieves: every metric, with the direction in which it is better, of one design or of many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import numpy.typing as npt

from cosmic.base.json_types import Keywords, Share, json_keys, unit
from cosmic.design.prediction_accuracy import Range

OF_STEPS = {
    "step_s": "less",
    "ttft_s": "less",
    "tpot_s": "less",
    "tokens_per_s": "more",
    "mfu": "more",
    "hfu": "more",
    "memory_bytes": "less",
    "memory_used_bytes": "less",
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
    """Time of one step: a training step, a prefill, or one decoded token for all sequences at once. Under a load, of a
    mean decode step."""
    ttft_s: float | None
    """Time to first token, under a load its mean over requests; None unless the task is a prefill."""
    tpot_s: float | None
    """Time per output token, under a load its mean over requests; None unless the task is decoding."""
    ttft_p95_s: float | None = None
    """Time to first token within which 95 % of requests are; None without a load. Like the next five."""
    tpot_p95_s: float | None = None
    """Time per output token within which 95 % of requests are; None without a load."""
    goodput_per_s: float | None = None
    """Requests a second within the limits of their class; None without a load, or without limits."""
    tokens_per_s_per_npu: Annotated[float | None, unit("tokens/s")] = None
    """Output tokens a second for each accelerator of all pools; None without a load."""
    tokens_per_s_per_user: Annotated[float | None, unit("tokens/s")] = None
    """Output tokens a second that one request gains while it decodes; None without a load."""
    energy_j_per_token: Annotated[float | None, unit("J")] = None
    """Energy of an output token, accelerators and network at full power; None without a load, or where no power is
    known."""
    tokens_per_s: float | None
    """Tokens per second of all accelerators together, under a load output tokens of all requests; None of a model without
    a sequence."""
    samples_per_s: float | None = None
    """Samples per second of all accelerators together, of a model without a sequence; None of others."""
    cost_usd_per_sample: Annotated[float | None, unit("USD")] = None
    """To own, for one sample of a model without a sequence; None of others, and where price or power are not known."""
    mfu: Share
    """Model flop utilisation: flop of the model over the peak of the accelerators."""
    hfu: Share
    """Hardware flop utilisation: recomputation counts as work."""
    memory_bytes: float
    """Tensors of the accelerator that needs most, at their peak: what its allocator has given out."""
    memory_used_bytes: float
    """What that accelerator shows of the process: its tensors, gaps of the allocator, context and communicators."""
    memory_range: Range | None = None
    """What it is expected to show when measured; None of an engine that does not say what memory is made of."""
    fits: Share | None = None
    """The probability that it fits into what the driver leaves of the memory; None like that."""
    memory: dict[str, Annotated[float, unit("B")]]
    """What it shows, by component."""
    memory_stage: int
    """Number of the pipeline stage whose accelerators need that much, from 0 on."""
    offloaded_bytes: float
    """Bytes in the outer memory tiers, for each accelerator."""
    memory_tiers: dict[str, dict[str, Annotated[float, unit("B")]]] = field(default_factory=dict)
    """By tier of memory, hbm first: its capacity, what it holds of each class of state, and what crosses its link in a
    step; empty where all state is in HBM."""
    cost_usd: float | None
    """Price of accelerators, hosts and network, to buy; None where a price is not known."""
    network_usd: float | None
    """Price of the network alone; None where a price of a part is not known."""
    cost_usd_per_token: Annotated[float | None, unit("USD")]
    """Cost to own, per token: depreciation, power and upkeep; None where price or power are not known."""
    power_w: float | None
    """Power at the meter with everything at its rated power: accelerators, hosts, network, and the building by its PUE;
    None where a power is not known."""
    energy_j: float | None
    """Energy of one step at the meter (under a load of a mean decode step), by use: accelerators that wait draw less; None
    where a power is not known."""
    goodput: Share | None = None
    """Share of the time of a training run that counts: interruptions, restarts and checkpoints take the rest. None where
    no rate of interruptions is known. Like the next five, of training."""
    effective_tokens_per_s: float | None = None
    """Tokens per second over a long training run: throughput times goodput."""
    train_days: float | None = None
    """Days to train on the tokens of the run, interruptions included; None where the run has no length."""
    train_usd: float | None = None
    """Cost of owning the cluster for the run; None where the run has no length, or a price is not known."""
    train_energy_j: float | None = None
    """Energy of the run at the meter; None where the run has no length, or a power is not known."""
    train_co2_kg: float | None = None
    """Carbon dioxide of that energy, by the grid's factor."""
    perf_per_bandwidth: Annotated[float | None, unit("1/B")]
    """Steps per second for each byte per second of an accelerator's network bandwidth: COSMIC's first reward."""
    perf_per_network_cost: Annotated[float | None, unit("1/(s USD)")]
    """Steps per second for each dollar of the network: COSMIC's second reward."""
    breakdown: dict[str, Annotated[float, unit("s")]]
    """Time of a step by component; the components add up to the step. If simulated, of the rank that finishes last."""
    provenance: str
    """Provenance of the accelerator's efficiencies: measured, calibrated, or an estimate."""
    expected_error: Share | None
    """Mean relative error of step times that validation found for such designs; None where no run like it was measured
    and predicted by the same model."""
    expected_on: str
    """The measured runs of that error: how many, and what they have in common with the design."""
    step_s_range: Annotated[Range, unit("s")]
    """What the step is expected to take when measured: quantiles, of which the median is the prediction."""
    tokens_per_s_range: Annotated[Range | None, unit("tokens/s")]
    """What the throughput is expected to be when measured; None of a model without a sequence."""
    samples_per_s_range: Annotated[Range | None, unit("samples/s")] = None
    """The same in samples, of a model without a sequence; None of others."""
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


@json_keys(*BETTER, own=False)
class DesignMetrics(Metrics):
    """Metrics of a design."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Infeasible:
    """A well-formed design that cannot run, and why."""

    reasons: Annotated[tuple[str, ...], Keywords(minItems=1)]
    """Why the design cannot run, a sentence each."""


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
