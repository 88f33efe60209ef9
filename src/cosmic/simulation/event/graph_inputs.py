"""A simulation's network file: ASTRA-sim's network YAML, or a graph of links in any known format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from cosmic.catalog.yaml_files import load_yaml
from cosmic.errors import require
from cosmic.files import read_text
from cosmic.graphs.degrading import degraded
from cosmic.graphs.graph import LinkGraph
from cosmic.graphs.reaching import require_connected
from cosmic.graphs.reading import TREES, graph_of_data, is_network_data, read_graph
from cosmic.simulation.event.inputs import AstraSimDimension, read_network
from cosmic.simulation.event.network import GRAPH

_DIMENSIONS = re.compile(r"^\s*[\"']?topology[\"']?\s*:", re.MULTILINE)
"""A key of ASTRA-sim's network YAML that no list of links has."""


def read_any_network(
    path: str | Path, failures: Sequence[str] = ()
) -> tuple[tuple[AstraSimDimension, ...], LinkGraph | None]:
    """Return the dimensions of a network file, and its links where it is a graph: then one dimension of all NPUs."""
    graph = _graph(Path(path))
    if graph is None:
        rule = "leaves out links of a network that is a graph, and this one has ASTRA-sim's dimensions"
        require(not failures, "--fail", ", ".join(failures), rule)
        return read_network(path), None
    graph = degraded(graph, failures)
    require_connected(graph, where=str(path))
    return (dimension_of(graph),), graph


def dimension_of(graph: LinkGraph) -> AstraSimDimension:
    """Return all NPUs of a graph as one dimension; messages take no time by it, but by their links."""
    return AstraSimDimension(GRAPH, graph.npus, 1.0, 0.0)


def _graph(path: Path) -> LinkGraph | None:
    """Return the graph in a file; None if it is to hold ASTRA-sim's dimensions."""
    ending = path.suffix.lower()
    if ending in TREES:
        tree = load_yaml(path)
        of_links = is_network_data(tree) or (isinstance(tree, dict) and "links" in tree)
        return graph_of_data(tree, path.name) if of_links else None
    if ending not in (".csv", ".graphml", ".xml") and _DIMENSIONS.search(read_text(path)):
        return None
    return read_graph(path)
