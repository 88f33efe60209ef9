"""Rows of single collectives, mostly inside one node, predicted on the catalog's links (`cosmic.network.collective_costs`).

Sizes are those of nccl-tests: the whole buffer, the output of an all-gather and the input of the others. A row without
a time gives the bus bandwidth:

    t = size * f / busbw        f = 2 (p - 1) / p for an all-reduce, (p - 1) / p for the others
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import get_args

from cosmic.accuracy.measured_rows import Fields, Row, Verdict, compare_row
from cosmic.base.errors import SpecError, require
from cosmic.design.collective_layer import CollectiveKind
from cosmic.design.measured_hardware import build_machine, find_fabric
from cosmic.design.network_layer import Dimension
from cosmic.design.systems import link_dimension
from cosmic.network.collective_costs import collective_seconds, dimension_at, subgroups
from cosmic.network.mesh_spans import Span

MEBI, MICRO = 2**20, 1e-6
KINDS = {"alltoall": "all_to_all"}
"""Names in rows that differ from `CollectiveKind`."""


@dataclass(frozen=True, slots=True)
class NodeLink:
    """The link inside a node, and the accelerator whose system joins nodes, if known."""

    link: str
    accelerator: str = ""
    topology: str = "switch"
    most: int = 8


HARDWARE = {
    "v100_sxm": NodeLink("nvlink2", "v100-sxm2-32gb", topology="hybrid_cube_mesh"),
    "a100_sxm": NodeLink("nvlink3", "a100-sxm-80gb"),
    "h100_sxm": NodeLink("nvlink4", "h100-sxm-80gb"),
    "h200_sxm": NodeLink("nvlink4", "h200-sxm-141gb"),
    "b200_sxm": NodeLink("nvlink5", "b200-sxm-180gb"),
    "b300_sxm": NodeLink("nvlink5", "b300-sxm"),
    "gb200": NodeLink("nvlink5", "gb200", most=72),
    "gb300": NodeLink("nvlink5", "gb300", most=72),
    "l40s": NodeLink("pcie4"),
    "rtx_pro_6000_server": NodeLink("pcie5"),
    "mi300x": NodeLink("xgmi", "mi300x", topology="fully_connected"),
}


def compare_rows(rows: Sequence[Row]) -> list[Verdict]:
    """Return the verdict on each collective."""
    return [compare_row(row, _name(row, index), _set(row), _compare_fields) for index, row in enumerate(rows)]


def _name(row: Row, index: int) -> str:
    parts = [row.get(key, "") for key in ("hardware", "collective", "n_ranks", "size_bytes")]
    return "-".join([*parts, str(index)])


def _set(row: Row) -> str:
    try:
        within_node, large = float(row["n_nodes"]) <= 1, float(row["size_bytes"]) >= MEBI
    except ValueError:
        return f"collectives {row['hardware']}"
    suffix = "" if within_node else " between nodes"
    return f"collectives {row['hardware']}{suffix} {'≥' if large else '<'} 1 MiB"


def _compare_fields(fields: Fields) -> Verdict:
    name = fields.text("hardware")
    require(name in HARDWARE, "hardware", name, f"must be one of {', '.join(HARDWARE)}")
    stated_kind = fields.text("collective")
    kind = KINDS.get(stated_kind, stated_kind)
    require(kind in get_args(CollectiveKind), "collective", stated_kind, "no such collective")
    ranks, size = fields.whole("n_ranks"), _size(fields)
    nodes = fields.whole("n_nodes", 1)
    require(ranks % nodes == 0, "n_nodes", nodes, f"must divide the {ranks} ranks")
    dims, chunks = _network(
        name, ranks, nodes, find_fabric(fields.text("source")), reducing=not fields.text("algo").startswith("Ring")
    )
    lanes = [dimension_at(dims, index, "auto") for index in range(len(dims))]
    parts = [Span(float(members), 1.0) for members in ((ranks // nodes, nodes) if nodes > 1 else (ranks,))]
    checked_kind: CollectiveKind = kind  # type: ignore[assignment]  # it was checked above
    seconds = collective_seconds(subgroups(lanes, parts), checked_kind, size, chunks, "blueconnect")
    measured = _measured(fields, kind, ranks, size)
    return Verdict(row=fields.row, measured_s=measured, predicted_s=float(seconds), assumed=tuple(fields.assumed))


def _size(fields: Fields) -> float:
    text = fields.text("size_bytes")
    require(text not in ("", "0"), "size_bytes", text, "the size is not given")
    return float(fields.whole("size_bytes"))


def _measured(fields: Fields, kind: str, ranks: int, size: float) -> float:
    if fields.text("time_us"):
        return fields.seconds("time_us", MICRO)
    rate = fields.number("busbw_GBps")
    if rate is None:
        raise SpecError("time_us", "", "neither a time nor a bandwidth is given")
    fields.assumed.append("measured_s: from busbw_GBps")
    return size * (1 + (kind == "all_reduce")) * (ranks - 1) / ranks / (rate * 1e9)


@cache
def _network(name: str, ranks: int, nodes: int, fabric: str, *, reducing: bool) -> tuple[tuple[Dimension, ...], int]:
    """Return the network's dimensions, innermost first, and the chunks that are pipelined through them.

    Unless *reducing*, switches do not reduce.
    """
    inner = HARDWARE[name]
    if nodes > 1:
        require(bool(inner.accelerator), "hardware", name, "what joins its nodes is not known")
        machine = build_machine(inner.accelerator, ranks, ranks // nodes, fabric=fabric)
        return machine.network.dims, machine.collective.chunks
    dim = link_dimension(inner.link, inner.most, inner.topology)
    return (dim if reducing else replace(dim, transport=replace(dim.transport, reduction_efficiency=0.0)),), 1
