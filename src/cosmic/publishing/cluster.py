"""A design on its network: the placement of each parallel axis, and the load and links of each network dimension."""

from __future__ import annotations

from cosmic.advice import NAMES
from cosmic.design.point import DesignPoint
from cosmic.publishing.contract import Cluster, NetworkDimension, ParallelAxis
from cosmic.publishing.links import links
from cosmic.reporting.words import share
from cosmic.simulation.analytic import slowest_stage
from cosmic.step.network_load import Load, loads, shapes_of

AXIS_NAMES = {
    "tp": "tensor parallel",
    "cp": "context parallel",
    "dp": "data parallel",
    "pp": "pipeline parallel",
    "ep": "expert parallel",
}
CARRIED = {"weights": "dp"}
"""Components of a step whose axis has another name."""


def cluster_of(point: DesignPoint, step_s: float) -> Cluster | None:
    """Return a design with a valid mapping on its network; None for a single accelerator, which has no network."""
    if not point.network.dims:
        return None
    sent = loads(point, slowest_stage(point))
    dims = [_dimension(point, place, sent, step_s) for place in range(len(point.network.dims))]
    axes = axes_of(point)
    return {
        "npus": point.network.npus,
        "accelerator": point.compute.accelerator,
        "axes": axes,
        "dims": dims,
        "reading": _reading(axes, dims),
    }


def axes_of(point: DesignPoint) -> list[ParallelAxis]:
    """Return the axes with more than one rank, innermost first; ep, which lies inside dp and cp, last."""
    names = [*point.workload.placement, "ep"]
    sizes = {name: getattr(point.workload, name) for name in names}
    return [{"name": name, "label": AXIS_NAMES[name], "size": sizes[name]} for name in names if sizes[name] > 1]


def _dimension(point: DesignPoint, place: int, sent: tuple[Load, ...], step_s: float) -> NetworkDimension:
    dim = point.network.dims[place]
    own = [load for load in sent if load.dimension == place]
    shapes = shapes_of(point)
    here = [(name, float(shapes[name][place].members)) for name in (*point.workload.placement, "ep")]
    total = sum(load.bytes for load in own)
    return {
        "topology": dim.topology,
        "label": f"{dim.topology.replace('_', ' ')} of {dim.npus}",
        "npus": dim.npus,
        "bandwidth_bytes_per_s": dim.bandwidth_bytes_per_s,
        "latency_s": dim.latency_s,
        "algorithm": point.collective.algorithms[place],
        "axes": [{"name": name, "ranks": ranks} for name, ranks in here if ranks > 1],
        "load": [
            {
                "axis": CARRIED.get(load.part, load.part),
                "label": NAMES[load.part],
                "bytes": load.bytes,
                "seconds": load.seconds,
            }
            for load in sorted(own, key=lambda load: -load.bytes)
        ],
        "utilization": min(1.0, total * dim.oversubscription / (dim.bandwidth_bytes_per_s * step_s)),
        "links": [list(pair) for pair in links(dim.topology, dim.npus)],
    }


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
