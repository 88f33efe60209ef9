"""A simulation's network file: ASTRA-sim's network YAML, or a graph of links in any known format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from cosmic.catalog.yaml_files import load_yaml
from cosmic.errors import require
from cosmic.files import read_text
from cosmic.graphs.graph import LinkGraph
from cosmic.simulation.event.inputs import AstraSimDimension, read_network
from cosmic.simulation.event.network import GRAPH

TREES = (".yaml", ".yml", ".json")
_DIMENSIONS = re.compile(r"^\s*[\"']?topology[\"']?\s*:", re.MULTILINE)
"""A key of ASTRA-sim's network YAML that no list of links has."""


def read_any_network(
    path: str | Path, failures: Sequence[str] = ()
) -> tuple[tuple[AstraSimDimension, ...], LinkGraph | None]:
    """Return the dimensions of a network file, and its links where it is a graph: then one dimension of all NPUs."""
    graph = _graph(Path(path), failures)
    if graph is None:
        rule = "leaves out links of a network that is a graph, and this one has ASTRA-sim's dimensions"
        require(not failures, "--fail", ", ".join(failures), rule)
        return read_network(path), None
    return (dimension_of(graph),), graph


def dimension_of(graph: LinkGraph) -> AstraSimDimension:
    """Return all NPUs of a graph as one dimension; messages take no time by it, but by their links."""
    return AstraSimDimension(GRAPH, graph.npus, 1.0, 0.0)


def _graph(path: Path, failures: Sequence[str]) -> LinkGraph | None:
    """Return the graph in a file, every NPU of which reaches every other; None if it holds ASTRA-sim's dimensions."""
    ending = path.suffix.lower()
    tree = load_yaml(path) if ending in TREES else None
    if isinstance(tree, dict) and "topology" in tree:
        return None
    if ending not in (*TREES, ".csv", ".graphml", ".xml") and _DIMENSIONS.search(read_text(path)):
        return None
    from cosmic.graphs.degrading import degraded  # noqa: PLC0415  ASTRA-sim's own files need none of these
    from cosmic.graphs.reaching import require_connected  # noqa: PLC0415
    from cosmic.graphs.reading import graph_of_data, is_network_data, read_graph  # noqa: PLC0415

    if ending not in TREES:
        graph = read_graph(path)
    elif is_network_data(tree) or (isinstance(tree, dict) and "links" in tree):
        graph = graph_of_data(tree, path.name)
    else:
        return None
    graph = degraded(graph, failures)
    require_connected(graph, where=str(path))
    return graph
