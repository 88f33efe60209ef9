"""A design on its network: the placement of each parallel axis, and the load and links of each network dimension."""

from __future__ import annotations

from cosmic.cost.tiers import tiers_of
from cosmic.design.network import Network
from cosmic.design.point import DesignPoint
from cosmic.publishing.contract import Cluster, NetworkDimension, ParallelAxis
from cosmic.publishing.links import links
from cosmic.reporting.words import share
from cosmic.step.bound import PARTS
from cosmic.step.network_load import NetworkLoad, network_loads
from cosmic.step.profile import StepProfile

AXIS_NAMES = {
    "tp": "tensor parallel",
    "cp": "context parallel",
    "dp": "data parallel",
    "pp": "pipeline parallel",
    "ep": "expert parallel",
}
CARRIED = {"weights": "dp"}
"""Components of a step whose axis has another name."""


def cluster_of(profile: StepProfile, step_s: float) -> Cluster | None:
    """Return where a design lies on its network; None for a single accelerator, which has none.

    *profile* is that of the stage that bounds the step.
    """
    point = profile.batch.base
    if not point.network.dims:
        return None
    sent = network_loads(profile)
    dims = [_dimension(profile, place, sent, step_s) for place in range(len(point.network.dims))]
    axes = axes_of(point)
    return {
        "npus": point.network.npus,
        "accelerator": point.compute.accelerator,
        "axes": axes,
        "dims": dims,
        "reading": _reading(axes, dims),
    }


def axes_of(point: DesignPoint) -> list[ParallelAxis]:
    """Return the axes with more than one rank, innermost first; ep, which splits the ranks of others, last."""
    names = [*point.workload.placement, "ep"]
    sizes = {name: getattr(point.workload, name) for name in names}
    return [{"name": name, "label": AXIS_NAMES[name], "size": sizes[name]} for name in names if sizes[name] > 1]


def _dimension(profile: StepProfile, place: int, sent: tuple[NetworkLoad, ...], step_s: float) -> NetworkDimension:
    point, shapes = profile.batch.base, profile.network.shapes
    dim = point.network.dims[place]
    own = [load for load in sent if load.dimension == place]
    names = [name for name in (*point.workload.placement, "ep") if name in shapes]
    here = [(name, float(shapes[name][place].members)) for name in names]
    total = sum(load.bytes for load in own)
    uplinks = [sum(tier) for tier in zip(*(load.uplinks for load in own), strict=True)] or [0.0]
    return {
        "topology": dim.topology,
        "label": _label(point.network, place),
        "npus": dim.npus,
        "bandwidth_bytes_per_s": dim.bandwidth_bytes_per_s,
        "latency_s": dim.latency_s,
        "algorithm": point.collective.algorithms[place],
        "axes": [{"name": name, "ranks": ranks} for name, ranks in here if ranks > 1],
        "load": [
            {
                "axis": CARRIED.get(load.part, load.part),
                "label": PARTS[load.part],
                "bytes": load.bytes,
                "seconds": load.seconds,
            }
            for load in sorted(own, key=lambda load: -load.bytes)
        ],
        "utilization": min(1.0, max(total * dim.blocking, *uplinks) / (dim.bandwidth_bytes_per_s * step_s)),
        "links": [list(pair) for pair in links(dim.topology, dim.npus, dim.links)],
    }


def _label(network: Network, place: int) -> str:
    """Return what a dimension is called, with what sets it apart from its topology."""
    dim, faults = network.dims[place], [fault for fault in network.faults if fault.dim == place]
    name = f"{dim.topology.replace('_', ' ')} of {dim.npus}"
    listed = f", {len(dim.links):,} links" if dim.links else ""
    listed += "".join(
        f", {tier.oversubscription:g}:1 out of {tier.npus}"
        for tier in tiers_of(network.dims, place)
        if tier.oversubscription > 1 and tier.npus < dim.npus
    )
    broken = sum(fault.speed == 0 for fault in faults)
    said = [f"{count} {word}" for count, word in ((broken, "broken"), (len(faults) - broken, "slow")) if count]
    return f"{name}{listed}{', faults: ' + ' and '.join(said) if said else ''}"


def _reading(axes: list[ParallelAxis], dims: list[NetworkDimension]) -> str:
    """Return a sentence with the placement of the axes, and the busiest network dimension."""
    if not axes:
        return "A single accelerator: nothing is sharded."
    lies = []
    for axis in axes:
        name = axis["name"]
        places = [str(place + 1) for place, dim in enumerate(dims) if any(each["name"] == name for each in dim["axes"])]
        if places:
            word = "dimension" if len(places) == 1 else "dimensions"
            lies.append(f"{name} {axis['size']} in network {word} {' and '.join(places)}")
    hardest = max(range(len(dims)), key=lambda place: dims[place]["utilization"])
    used = share(dims[hardest]["utilization"])
    return f"{'; '.join(lies)}. Dimension {hardest + 1} is the busiest: {used} of its bandwidth over the step."
