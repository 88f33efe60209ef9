"""What is to be provisioned, and what came of it.

A problem is traffic on the dimensions of a network, what bandwidth costs, and what limits it. The result is the same
for LIBRA's inputs and for designs: the bandwidth of every dimension, the time of every load, prices of the limits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from cosmic.base.errors import require
from cosmic.search.provision.interior_point import Vector

# --------------------------------------------------------------------------------------
# What is to be provisioned: traffic on the dimensions of a network, what bandwidth costs, and what limits it
# --------------------------------------------------------------------------------------

Objective = Literal["time", "time_per_dollar"]
Sense = Literal["<=", "==", ">="]
OBJECTIVES: tuple[Objective, ...] = get_args(Objective)
GIGA = 1e9


@dataclass(frozen=True, slots=True)
class Traffic:
    """One collective: all its dimensions are busy at once, so that it takes as long as the slowest of them.

    >>> float(Traffic("all-reduce", (2e9, 1e9)).seconds(np.array([1e9, 1e9])))
    2.0
    """

    name: str
    bytes_of_dims: tuple[float, ...]
    """Bytes that an NPU sends in each dimension."""
    times: float = 1.0
    """How often it runs."""

    def seconds(self, bandwidth_bytes_per_s: Vector) -> Vector:
        """Return how long all its runs take, on one network or on many, a row each."""
        slowest: Vector = np.max(_seconds_of_dims(self.bytes_of_dims, bandwidth_bytes_per_s), axis=-1, initial=0.0)
        return self.times * slowest


@dataclass(frozen=True, slots=True)
class TrafficLoad:
    """One workload.

    time = compute + sum of exposed + max(hiding, sum of hidden)
    """

    name: str
    compute_s: float
    exposed: tuple[Traffic, ...]
    hidden: tuple[Traffic, ...] = ()
    hiding_s: float = 0.0
    """Compute that the hidden traffic runs beside."""
    weight: float = 1.0

    def seconds(self, bandwidth_bytes_per_s: Vector) -> Vector:
        """Return how long the workload takes."""
        exposed = sum(traffic.seconds(bandwidth_bytes_per_s) for traffic in self.exposed)
        hidden = sum(traffic.seconds(bandwidth_bytes_per_s) for traffic in self.hidden)
        total: Vector = self.compute_s + exposed + np.maximum(self.hiding_s, hidden)
        return total


@dataclass(frozen=True, slots=True)
class Limit:
    """A linear constraint on bandwidth, in bytes/s, or on dollars."""

    text: str
    """As its author wrote it."""
    coefficients: tuple[float, ...]
    sense: Sense
    value: float
    budget: bool = False
    """Whether it says what is to be spent: with whole ports, as much as can be."""

    def excess(self, bandwidth_bytes_per_s: Vector) -> Vector:
        """Return by how much networks break it: positive where they do."""
        over: Vector = bandwidth_bytes_per_s @ np.array(self.coefficients) - self.value
        return over if self.sense == "<=" else -over if self.sense == ">=" else np.abs(over)


@dataclass(frozen=True, slots=True)
class BandwidthProblem:
    """Bandwidth that is sought: of every dimension, under limits."""

    loads: tuple[TrafficLoad, ...]
    limits: tuple[Limit, ...]
    usd_per_bytes_per_s: tuple[float, ...]
    """Dollars of the whole network for a byte/s of each NPU in a dimension."""
    objective: Objective = "time"

    def __post_init__(self) -> None:
        require(self.objective in OBJECTIVES, "--objective", self.objective, f"must be one of {', '.join(OBJECTIVES)}")
        require(bool(self.usd_per_bytes_per_s), "network", 0, "has no dimensions")
        for load in self.loads:
            require(np.isfinite(load.weight) and load.weight > 0, "weight", load.weight, "must be positive")
        if self.objective == "time_per_dollar":
            priced = min(self.usd_per_bytes_per_s) > 0
            require(priced, "--objective", self.objective, "needs a price of bandwidth in every dimension")

    @property
    def dims(self) -> int:
        """Number of dimensions."""
        return len(self.usd_per_bytes_per_s)

    def seconds(self, bandwidth_bytes_per_s: Vector) -> Vector:
        """Return the weighted sum of the workloads' times, on one network or on many, a row each."""
        total: Vector = np.zeros(np.shape(bandwidth_bytes_per_s)[:-1])
        for load in self.loads:
            total = total + load.weight * load.seconds(bandwidth_bytes_per_s)
        return total

    def usd(self, bandwidth_bytes_per_s: Vector) -> Vector:
        """Return what the network costs."""
        return np.asarray(bandwidth_bytes_per_s @ np.array(self.usd_per_bytes_per_s))

    def value(self, bandwidth_bytes_per_s: Vector) -> Vector:
        """Return the objective: seconds, or seconds times dollars."""
        seconds = self.seconds(bandwidth_bytes_per_s)
        return seconds if self.objective == "time" else seconds * self.usd(bandwidth_bytes_per_s)


@dataclass(frozen=True, slots=True)
class Price:
    """What a limit costs."""

    limit: Limit
    per_unit: float
    """By how much the objective falls for each byte/s (or dollar) that the limit is moved outwards, or up."""
    binds: bool


@dataclass(frozen=True, slots=True)
class Binding:
    """Which dimensions a collective waits for."""

    load: str
    traffic: str
    seconds: float
    dims: tuple[int, ...]
    """Dimensions that take as long as the collective; several at once where bandwidth is in proportion."""
    shares: tuple[float, ...]
    """How the optimality of the whole weighs its dimensions; they add up to 1 (0 where it is hidden altogether)."""


@dataclass(frozen=True, slots=True)
class Solution:
    """The best bandwidth, with a proof that none is better."""

    bandwidth_bytes_per_s: tuple[float, ...]
    time_s: float
    cost_usd: float
    objective: float
    bound: float
    """No bandwidth within the limits has a lower objective: from the multipliers alone."""
    prices: tuple[Price, ...]
    worth_s_per_bytes_per_s: tuple[float, ...]
    """Seconds that another byte/s of each dimension is worth, if it were free."""
    bindings: tuple[Binding, ...]

    @property
    def duality_gap(self) -> float:
        """How far the objective may be above the optimum, relative to it."""
        return max(0.0, self.objective - self.bound) / self.objective if self.objective else 0.0


def _seconds_of_dims(amounts: tuple[float, ...], bandwidth_bytes_per_s: Vector) -> Vector:
    """Return the seconds of each dimension; one that carries nothing takes none, even without bandwidth."""
    sent = np.array(amounts)
    nothing = np.zeros(np.shape(bandwidth_bytes_per_s))
    with np.errstate(divide="ignore"):
        seconds: Vector = np.divide(sent, bandwidth_bytes_per_s, out=nothing, where=sent > 0)
    return seconds


# --------------------------------------------------------------------------------------
# What came of provisioning, the same for LIBRA's inputs and for designs
# --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProvisionedDimension:
    """One dimension before and after."""

    topology: str
    npus: int
    base_bytes_per_s: float
    """Before: of a design its own, else an equal share of what is spent."""
    bandwidth_bytes_per_s: float
    cost_usd: float
    busiest: str
    """The collective that keeps it busy longest; empty if none uses it."""
    worth_s_per_bytes_per_s: float
    """Seconds that another byte/s would save, if it were free."""


@dataclass(frozen=True, slots=True)
class ProvisionedLoad:
    """One workload before and after."""

    name: str
    weight: float
    base_time_s: float
    time_s: float


@dataclass(frozen=True, slots=True)
class WholePorts:
    """The best bandwidth in whole ports."""

    port: str
    bandwidth_bytes_per_s: tuple[float, ...]
    ports: tuple[int, ...]
    """Ports of an NPU in each dimension."""
    time_s: float
    cost_usd: float
    gap: float
    """By what share the objective is above that of the continuous optimum."""


@dataclass(frozen=True, slots=True)
class Provisioned:
    """The best bandwidth of every dimension, and why."""

    objective: Objective
    dims: tuple[ProvisionedDimension, ...]
    loads: tuple[ProvisionedLoad, ...]
    base_time_s: float
    time_s: float
    """The weighted sum of the workloads' times."""
    base_cost_usd: float
    cost_usd: float
    value: float
    """Of the objective: seconds, or seconds times dollars."""
    bound: float | None
    """No bandwidth within the limits has a lower value; None of a design, whose step is searched and not proven."""
    prices: tuple[Price, ...]
    bindings: tuple[Binding, ...]
    ports: WholePorts | None = None

    @property
    def duality_gap(self) -> float | None:
        """How far the value may be above the optimum, relative to it; None where nothing is proven."""
        return None if self.bound is None else max(0.0, self.value - self.bound) / self.value if self.value else 0.0

    @property
    def gain(self) -> float:
        """By what factor the objective is better than before."""
        before = self.base_time_s * (1.0 if self.objective == "time" else self.base_cost_usd)
        return before / self.value if self.value else 1.0

    def headline(self) -> str:
        """Return the result in one sentence."""
        rates = " / ".join(f"{dim.bandwidth_bytes_per_s / GIGA:.4g}" for dim in self.dims)
        quality = "fast" if self.objective == "time" else "good in time for its cost"
        before = "the present bandwidth" if self.bound is None else "equal bandwidth in all dimensions"
        return f"{rates} GB/s: {self.gain:.4g}× as {quality} as {before}"
