"""Whether a network can be built as its fabrics say: switches where a topology has them, and ports wide enough."""

from __future__ import annotations

from typing import Any

from cosmic.design.batch import Batch, Label, known
from cosmic.design.fabric import BY_BANDWIDTH, INCLUDED, builds
from cosmic.design.point import DesignPoint
from cosmic.numeric import Condition


def fabrics_hold(batch: Batch) -> Condition:
    """Return whether every dimension has a topology that its build can carry."""
    found: Condition = True
    for place in range(len(batch.base.network.dims)):
        build, topology = (batch[f"network.dims.{place}.{key}"] for key in ("fabric.build", "topology"))
        for name in _names(build):
            carried = _carried(name)
            if carried:
                found = found & ((build != name) | _is_among(topology, carried))
        found = found & _has_ports(batch, place)
    return found


def fabrics_sentence(point: DesignPoint) -> str:
    """Return which dimension cannot be built so, and why."""
    for place, dim in enumerate(point.network.dims):
        carried, where = _carried(dim.fabric.build), f"network.dims.{place}"
        if carried and dim.topology not in carried:
            rule = f"cables between neighbours make a {' or a '.join(carried)}"
            return f"{where}.fabric.build {dim.fabric.build} of a {dim.topology}: {rule}, choose a build with switches"
    return (
        "network.dims: a switch has fewer than two ports at the bandwidth of a NIC: lower bandwidth, or name another "
        "fabric.switch"
    )


def _carried(build: str) -> tuple[str, ...]:
    """Return the topologies that a build is limited to; none where it carries any."""
    return tuple(getattr(builds[build], "topologies", ()))


def _names(label: Label) -> tuple[str, ...]:
    return (label,) if isinstance(label, str) else label.names


def _is_among(label: Any, names: tuple[str, ...]) -> Condition:
    found: Condition = False
    for name in names:
        found = found | (label == name)
    return found


def _has_ports(batch: Batch, place: int) -> Condition:
    """Return whether two NICs fit on a switch, where the fabric says how wide its ports are, and has switches."""
    where = f"network.dims.{place}"
    build, width = batch[f"{where}.fabric.build"], batch[f"{where}.fabric.port_bandwidth"]
    if width is None:
        return True
    enough = batch[f"{where}.fabric.radix"] * known(width) >= 2 * batch[f"{where}.bandwidth"]
    free: Condition = _is_among(build, (BY_BANDWIDTH, INCLUDED))
    for name in _names(build):
        if _carried(name):  # no switch at all
            free = free | (build == name)
    unknown = known(width) != known(width)
    found: Condition = free | enough | unknown
    return found
