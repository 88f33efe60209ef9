"""What came of provisioning, the same for LIBRA's inputs and for designs."""

from __future__ import annotations

from dataclasses import dataclass

from cosmic.provisioning.problem import GIGA, Binding, Objective, Price


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
        what = "fast" if self.objective == "time" else "good in time for its cost"
        before = "the present bandwidth" if self.bound is None else "equal bandwidth in all dimensions"
        return f"{rates} GB/s: {self.gain:.4g}× as {what} as {before}"
