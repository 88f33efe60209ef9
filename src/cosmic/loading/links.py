"""Dimensions of a network whose links are in a file: the path of one in place of the list."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cosmic import units
from cosmic.catalog.systems import NO_FILES
from cosmic.design.network import GRAPH
from cosmic.design.schema import read_source
from cosmic.errors import require
from cosmic.loading.readers import read_links


def with_links(network: Any, folder: Path | None) -> Any:
    """Return the content of a network with the links of files in place of their paths, relative to *folder*."""
    dims = network.get("dims") if isinstance(network, Mapping) else None
    if not isinstance(dims, list):
        return network
    return {**network, "dims": [_read(dim, folder, f"network.dims.{place}") for place, dim in enumerate(dims)]}


def _read(dim: Any, folder: Path | None, where: str) -> Any:
    """Return a dimension with its links listed; the file also says how many NPUs there are."""
    if not (isinstance(dim, Mapping) and isinstance(dim.get("links"), str)):
        return dim
    where = f"{where}.links"
    path = read_source(dim["links"], where)
    require(folder is not None, where, path, NO_FILES)
    graph = read_links((folder or Path()) / path, where)
    columns = (graph.sources, graph.targets, graph.bandwidth_bytes_per_s, graph.latency_s)
    links = [
        {
            "source": source,
            "target": target,
            "bandwidth": units.show(bandwidth, units.BYTES_PER_S),
            "latency": units.show(latency, units.SECONDS),
        }
        for source, target, bandwidth, latency in zip(*(column.tolist() for column in columns), strict=True)
    ]
    return {"topology": GRAPH, "npus": graph.npus, **dim, "links": links}
