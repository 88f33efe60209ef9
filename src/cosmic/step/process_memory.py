"""What a process holds on its device beside tensors, and how sure the sum is.

`nvidia-smi` shows more of a process than its tensors: gaps between them that no tensor fits into (*fragmentation*),
freed blocks that the allocator keeps for later (*cached*), the *context* of the driver with the code of kernels, and the
buffers of its *communicators*. Cached blocks are given back when memory runs short, so that they do not decide whether a
design fits:

    needed(z) = sum over the other components of  size · exp(spread · z)
    used(z)   = min(needed(z) + cached · exp(spread · z), what the driver leaves)

z = 0 is the median, z = 1.645 the 95th percentile. Sizes are medians. Spreads are logarithmic standard deviations, found
on measured processes whose whole source was left out (calibration/fit_memory.py). Components err together, so that their
quantiles add up: an eager model that keeps one more copy of an activation also leaves larger gaps. The probability that
a design fits is that of the z at which needed(z) is all that the driver leaves.

An accelerator that states ``context: 0 B`` runs no framework's process: those of the papers, whose memory is what
tensors need.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp
from statistics import NormalDist

from cosmic.base.numeric import Condition, Numeric, choose, larger, smaller, sum_of
from cosmic.design.catalog_entries import load_constants
from cosmic.design.design_batch import Batch
from cosmic.design.design_point import DesignPoint
from cosmic.design.prediction_accuracy import Range
from cosmic.workload.mesh_sizes import sizes_of

FRAGMENTATION, CACHED, CONTEXT, COMMUNICATORS = PROCESS = ("fragmentation", "cached", "context", "communicators")
"""Components that are no tensors."""
TRANSIENT = ("activations", "loss", "buffers")
"""Components that are allocated and freed in every step."""
AXES = ("tp", "cp", "dp", "pp", "ep", "edp")
"""Axes of a mesh whose groups have a communicator each."""
REPLICAS = ("dp", "edp")
NORMAL = NormalDist()
WIDEST = 8.0
"""Standard deviations beyond which a design fits for sure, or never."""


@dataclass(frozen=True, slots=True)
class Spreads:
    """Logarithmic standard deviations of components."""

    static: float
    """Of weights, gradients and optimizer states: formulas give them, but for copies that a framework makes."""
    transient: float
    """Of activations, the loss and buffers: which of them a framework keeps is its own choice."""
    fragmentation: float
    cached: float
    context: float
    """Of an accelerator whose context is known."""
    unknown_context: float
    communicators: float


@dataclass(frozen=True, slots=True)
class ProcessConstants:
    """What processes hold beside tensors."""

    fragmentation: float
    """Share of the tensors at the peak that gaps take between them."""
    cached: float
    """Share of them that the allocator keeps of blocks that were freed."""
    context_bytes: float
    """The context of a process whose accelerator states none."""
    communicator_bytes: float
    """The buffers of a communicator."""
    bare_fragmentation: float
    """The share of transient memory that gaps take where no framework's process is counted."""
    spreads: Spreads


CONSTANTS = load_constants("process", ProcessConstants)


def has_process(point: DesignPoint) -> bool:
    """Return whether memory is that of a framework's process."""
    return point.memory.context_bytes != 0


def frees_blocks(point: DesignPoint) -> bool:
    """Return whether tensors come and go: engines allocate weights and cache once, before the first request."""
    return has_process(point) and point.workload.task == "training"


def process_parts(batch: Batch, parts: Mapping[str, Numeric]) -> dict[str, Numeric]:
    """Return the bytes of the components that are no tensors, beside those that are."""
    transient = sum_of(parts[name] for name in TRANSIENT)
    none, tensors = 0.0 * transient, sum_of(parts.values())
    gaps = CONSTANTS.bare_fragmentation * transient
    if not has_process(batch.base):
        return {FRAGMENTATION: gaps, CACHED: none, CONTEXT: none, COMMUNICATORS: none}
    context, buffers = batch.base.memory.context_bytes, batch.base.memory.communicator_bytes
    trains = frees_blocks(batch.base)
    needed = {
        FRAGMENTATION: CONSTANTS.fragmentation * tensors if trains else gaps,
        CONTEXT: none + (CONSTANTS.context_bytes if context is None else context),
        COMMUNICATORS: none + (CONSTANTS.communicator_bytes if buffers is None else buffers) * communicators(batch),
    }
    room = larger(left_bytes(batch) - tensors - sum_of(needed.values()), 0.0)
    return {**needed, CACHED: smaller(CONSTANTS.cached * tensors, room) if trains else none}


def communicators(batch: Batch) -> Numeric:
    """Return how many groups of several members a rank belongs to.

    Replicas of experts are a group of their own only where experts are spread. Replicas that serve do not talk.
    """
    sizes, trains = sizes_of(batch), batch.base.workload.task == "training"
    groups = {axis: _is_group(sizes[axis]) for axis in AXES if axis in sizes and (trains or axis not in REPLICAS)}
    if "edp" in groups:
        groups["edp"] = groups["edp"] * _is_group(sizes["ep"])
    return sum_of(groups.values(), 0.0)


def _is_group(members: Numeric) -> Numeric:
    several: Condition = members > 1
    return choose(several, 1.0, 0.0)


def spread_of(point: DesignPoint, component: str) -> float:
    """Return how uncertain a component is: the standard deviation of its logarithm."""
    spreads = CONSTANTS.spreads
    if not has_process(point):
        return 0.0
    if component == CONTEXT:
        return spreads.unknown_context if point.memory.context_bytes is None else spreads.context
    if component in (FRAGMENTATION, CACHED, COMMUNICATORS):
        return float(getattr(spreads, component))
    return spreads.transient if component in TRANSIENT else spreads.static


def quantile_factor(point: DesignPoint, component: str, probability: float) -> float:
    """Return a quantile of a component over its median."""
    return exp(spread_of(point, component) * NORMAL.inv_cdf(probability))


def needed_bytes(point: DesignPoint, parts: Mapping[str, Numeric], probability: float | None = None) -> Numeric:
    """Return what a design needs at most with a *probability*: that with which it must fit, if not given."""
    at = point.memory.fits if probability is None else probability
    return sum_of(quantile_factor(point, name, at) * size for name, size in parts.items() if name != CACHED)


def needed_per_byte(point: DesignPoint, component: str) -> float:
    """Return what a byte of a component needs of the memory, gaps included, to fit as surely as it must."""
    needed = quantile_factor(point, component, point.memory.fits)
    share = CONSTANTS.fragmentation if frees_blocks(point) else CONSTANTS.bare_fragmentation * (component in TRANSIENT)
    return needed + share * quantile_factor(point, FRAGMENTATION, point.memory.fits)


def format_probability(share: float) -> str:
    """Return a probability in percent, of which those near 0 and 100 % are bounds.

    >>> [format_probability(each) for each in (0.984, 0.9999, 0.0001)]
    ['98 %', 'more than 99 %', 'less than 1 %']
    """
    if share > 0.995:
        return "more than 99 %"
    return "less than 1 %" if share < 0.005 else f"{100 * share:.0f} %"


def used_range(point: DesignPoint, parts: Mapping[str, float]) -> Range:
    """Return what a device is expected to show when measured."""
    left, cached = point.memory.left_bytes, parts.get(CACHED, 0.0)
    quantiles = []
    for at in (0.05, 0.25, 0.5, 0.75, 0.95):
        needed = float(needed_bytes(point, parts, at))
        quantiles.append(max(needed, min(needed + quantile_factor(point, CACHED, at) * cached, left)))
    return Range(*quantiles)


def left_bytes(batch: Batch) -> Numeric:
    """Return what the driver leaves of the memory."""
    left: Numeric = batch["memory.usable"] * batch["memory.capacity"]
    return left


def fit_probability(point: DesignPoint, parts: Mapping[str, float]) -> float:
    """Return the probability that components fit into what the driver leaves of the memory.

    used(z) rises with z, so that the z at which it is all of the memory is found by halving.
    """
    usable = point.memory.left_bytes
    spreads = {name: spread_of(point, name) for name in parts if name != CACHED}
    low, high = -WIDEST, WIDEST
    for _ in range(60):
        middle = (low + high) / 2
        if sum(parts[name] * exp(spread * middle) for name, spread in spreads.items()) <= usable:
            low = middle
        else:
            high = middle
    return NORMAL.cdf(low)
