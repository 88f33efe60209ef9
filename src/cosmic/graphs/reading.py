"""Read a network from a file of any known format.

.csv               source,target,bandwidth,latency
.yaml .yml         npus, switches and links; or InfraGraph
.json              NetworkX' node-link data, or the keys of the YAML formats
.graphml .xml      GraphML
any other          TACOS' list of links, or ASTRA-sim's physical topology
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cosmic.catalog.yaml_files import parse_json, parse_yaml
from cosmic.errors import require
from cosmic.files import read_text
from cosmic.graphs.attributed import graph_of_node_link, is_node_link, parse_graphml
from cosmic.graphs.graph import LinkGraph
from cosmic.graphs.infragraph import graph_of_infragraph, is_infragraph
from cosmic.graphs.link_lists import parse_csv, parse_tacos
from cosmic.graphs.link_trees import graph_of_tree, is_link_tree
from cosmic.graphs.physical_topology import parse_physical_topology

TREES = (".yaml", ".yml", ".json")
NO_LINKS = (
    "is no network: a YAML or JSON file has npus and links, NetworkX' nodes and links, or InfraGraph's devices, "
    "instances and edges"
)


def read_graph(path: str | Path, where: str = "network") -> LinkGraph:
    """Return the network in the file at *path*, whose format its ending and its first line say."""
    file, text = Path(path), read_text(path, where)
    ending = file.suffix.lower()
    if ending in TREES:
        tree = parse_json(text, file.name) if ending == ".json" else parse_yaml(text, file.name)
        return graph_of_data(tree, file.name)
    if ending in (".graphml", ".xml"):
        return parse_graphml(text, file.name)
    return _parse_text(text, file.name)


def is_network_data(tree: Any) -> bool:
    """Return whether what a YAML or JSON file holds is a network of links."""
    return is_link_tree(tree) or is_node_link(tree) or is_infragraph(tree)


def graph_of_data(tree: Any, where: str) -> LinkGraph:
    """Return the network that a YAML or JSON file holds."""
    if is_link_tree(tree):
        return graph_of_tree(tree, where)
    if is_infragraph(tree):
        return graph_of_infragraph(tree, where)
    require(is_node_link(tree), where, tree, NO_LINKS)
    return graph_of_node_link(tree, where)


def _parse_text(text: str, where: str) -> LinkGraph:
    """Return the network of a list of links, which its first line tells apart."""
    first = next((line for line in text.splitlines() if line.partition("#")[0].strip()), "")
    require(bool(first), where, "", "is empty: a network has NPUs and links")
    if text.lstrip().startswith("<"):
        return parse_graphml(text, where)
    if "," in first:
        return parse_csv(text, where)
    parse = parse_tacos if len(first.partition("#")[0].split()) == 1 else parse_physical_topology
    return parse(text, where)
