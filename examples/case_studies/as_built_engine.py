"""The original's environment under its own conditions, as an engine with fields of its own.

What its files and logs say (oss-arch-gym, and the simulator that it used): four blocks of a model are timed, without
microbatches, so that pipelines only serialise; an element has one byte; compute takes the time of its memory traffic,
whatever the peak rate; groups smaller than the system are one flat ring over their members, data parallelism
innermost; memory is an estimate that swaps a branch and counts no optimizer. What an operator reads and writes, and how
flat rings cross dimensions, is ours: the logs do not say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from cosmic.design import Infeasible
from cosmic.plugins import EngineFields, engine

TIERS = {"chiplet": (2.0, 0.0, 0.0), "package": (4.0, 13.0, 0.0), "node": (4.0, 13.0, 0.0), "pod": (7.8, 18.0, 31.6)}
"""Dollars for each GB/s of a link, a switch and a NIC, by the dimension, innermost first."""


@dataclass(frozen=True)
class AsBuilt(EngineFields):
    """A point of the original's space; bandwidths are of one link, in GB/s."""

    dp: int = 8
    pp: int = 4
    sp: int = 8
    weight_sharded: bool = True
    topology: tuple[str, ...] = ("Ring", "FullyConnected", "Ring", "Switch")
    npus: tuple[int, ...] = (4, 8, 4, 8)
    bandwidth: tuple[float, ...] = (187.5, 25.0, 75.0, 100.0)
    latency_ns: tuple[float, ...] = (20.0, 700.0, 700.0, 1700.0)
    memory_gb_per_s: float = 50.0
    batch: int = 2048
    length: int = 2048
    hidden: int = 12288
    ffn: int = 49152
    heads: int = 96
    stacks: int = 4
    checked: bool = True
    """Whether estimates beyond 24 GB are refused; in the final runs they were not."""

    @property
    def mp(self) -> int:
        """Tensor parallelism: what is left of the NPUs."""
        return prod(self.npus) // (self.dp * self.pp * self.sp)


@engine(
    "as_built", version="1", metrics={"run_s": "less", "estimate_bytes": "less", "network_usd": "less"}, fields=AsBuilt
)
def as_built(point: AsBuilt) -> dict[str, float] | Infeasible:
    """COSMIC's original environment, by its own conditions."""
    if point.mp < 1 or prod(point.npus) != point.dp * point.pp * point.sp * point.mp:
        return Infeasible(("dp * sp * pp does not divide the NPUs",))
    if point.topology[0] == "Switch":
        return Infeasible(("the innermost dimension has no switch",))
    needed = estimate_bytes(point)
    if point.checked and needed > 24e9:
        return Infeasible(("the estimate of memory exceeds 24 GB",))
    return {"run_s": run_s(point), "estimate_bytes": needed, "network_usd": dollars(point)}


# ------------------------------------------------------------------------------------------------------- time


def run_s(point: AsBuilt) -> float:
    """Return the seconds of a step: all blocks one after the other, on whichever stage they are."""
    block = compute_bytes(point) / (1e9 * point.memory_gb_per_s) + communication_s(point)
    return point.stacks * block + (point.pp - 1) * 2 * _shard(point) / (1e9 * min(point.bandwidth))


def compute_bytes(point: AsBuilt) -> float:
    """Return what the operators of a block read and write, forward and backward; an element is a byte."""
    tokens, d, f, mp = _tokens(point), point.hidden, point.ffn, point.mp
    scores = point.batch / point.dp * point.length * point.length / point.sp * point.heads / mp
    queries = point.batch / point.dp * point.length * d / mp
    projections = tokens * d + 3 * d * d / mp + 3 * tokens * d / mp
    attention = (queries + tokens * d / mp + scores) + (scores + tokens * d / mp + queries)
    mlp = (tokens * d + d * f / mp + tokens * f / mp) + (tokens * f / mp + d * f / mp + tokens * d)
    return 3 * (projections + attention + mlp) + 3 * 4 * 2 * _shard(point)  # a product has two in the backward pass


def communication_s(point: AsBuilt) -> float:
    """Return the seconds of a block's collectives, none of them hidden."""
    tokens, weights = _tokens(point), (3 * point.hidden**2 + 2 * point.hidden * point.ffn) / point.mp
    queries = point.batch / point.dp * point.length * point.hidden / point.mp
    tensor, sequence = (ring_s(point, axis) for axis in ("mp", "sp"))
    found = 2 * (3 * tensor(tokens * point.hidden) + 2 * sequence(queries))
    for axis in ("dp", "sp"):
        of_weights = ring_s(point, axis)
        found += of_weights(weights) * (3 if point.weight_sharded else 2)
    return found


def ring_s(point: AsBuilt, axis: str) -> Callable[[float], float]:
    """Return the seconds of an all-gather or reduce-scatter, by its bytes, in the flat ring of the group of an axis."""
    sizes = {"dp": point.dp, "mp": point.mp, "sp": point.sp, "pp": point.pp}
    order = list(sizes)
    members, stride = sizes[axis], prod(sizes[each] for each in order[: order.index(axis)])
    slowest, latency, inner = float("inf"), 0.0, 1
    for topology, npus, rate, delay in zip(point.topology, point.npus, point.bandwidth, point.latency_ns, strict=True):
        outer = inner * npus
        if inner < stride * members and outer > stride:  # the ring crosses this dimension
            step = max(1, stride // inner)
            hops = min(step, npus - step) if topology == "Ring" and npus > step else 1
            slowest, latency = min(slowest, rate / max(1, hops)), max(latency, delay * max(1, hops))
        inner = outer
    return lambda size: 0.0 if members == 1 else (members - 1) * (size / members / (1e9 * slowest) + 1e-9 * latency)


def _tokens(point: AsBuilt) -> float:
    return point.batch / point.dp * point.length / point.sp


def _shard(point: AsBuilt) -> float:
    return _tokens(point) * point.hidden / point.mp


# -------------------------------------------------------------------------------------------- memory, dollars


def estimate_bytes(point: AsBuilt) -> float:
    """Return the original's estimate of memory, its swapped branch included; it agrees with its logs exactly."""
    d, f, mp, group = point.hidden, point.ffn, point.mp, point.dp * point.mp * point.sp
    sharded, tokens = point.weight_sharded, point.batch * point.length
    attention = 3 * d * d / mp if sharded else 3 * d * d / (mp * point.dp * point.sp)
    weights = attention + 2 * d * f / mp + 2 * d * d / mp
    held = (6 * tokens * d + tokens * point.length * point.heads + tokens * f + 3 * tokens * d) / group
    embedded = 2 * tokens * d / (group if sharded else point.dp * point.sp)
    return 2 * (weights + held + embedded) * point.stacks / point.pp


def dollars(point: AsBuilt) -> float:
    """Return the original's price of a network, which agrees with its logs exactly."""
    total, whole = 0.0, prod(point.npus)
    for prices, topology, n, rate in zip(TIERS.values(), point.topology, point.npus, point.bandwidth, strict=True):
        link, switch, nic = prices
        block = {"Ring": 2 * n * link, "FullyConnected": n * (n - 1) * link, "Switch": n * (2 * link + switch + nic)}
        total += whole / n * block[topology] * rate
    return total
