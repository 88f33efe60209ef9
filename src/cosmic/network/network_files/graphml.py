"""Networks as graphs with attributes: GraphML, and NetworkX' node-link JSON.

An edge states its ``bandwidth`` and ``latency`` as text with a unit, or as numbers whose names have one
(``bandwidth_gbps``, ``latency_us``). A node whose ``type`` is ``switch`` keeps no data. An edge of an undirected graph
is two links.
"""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from cosmic.base.errors import require
from cosmic.network.link_graph import LinkGraph
from cosmic.network.network_files.named_nodes import (
    NamedLink,
    assemble_graph,
    latency_of,
    parse_xml,
    rate_of,
    sort_names,
)

_EDGES = ("links", "edges")
"""Where node-link data has its edges: the former until NetworkX 3.3, the latter since."""


def parse_graphml(text: str, where: str) -> LinkGraph:
    """Return the network of a GraphML file."""
    root = parse_xml(text, where)
    require(_local_tag(root) == "graphml", where, _local_tag(root), "is not GraphML")
    keys = {key.get("id", ""): key.get("attr.name", "") for key in root.iter() if _local_tag(key) == "key"}
    graphs = [element for element in root if _local_tag(element) == "graph"]
    require(len(graphs) == 1, where, f"{len(graphs)} graphs", "must hold one graph")
    nodes = [
        (element.get("id", ""), _read_data(element, keys)) for element in graphs[0] if _local_tag(element) == "node"
    ]
    directed = graphs[0].get("edgedefault", "undirected") == "directed"
    links: list[NamedLink] = []
    for element in (element for element in graphs[0] if _local_tag(element) == "edge"):
        own = {"true": True, "false": False}.get(element.get("directed", ""), directed)
        links += _read_edge(element.get("source"), element.get("target"), _read_data(element, keys), own, where)
    return _build_network(nodes, links, where)


def _local_tag(element: ElementTree.Element) -> str:
    """Return the name of an element without its namespace."""
    return element.tag.rpartition("}")[2]


def _read_data(element: ElementTree.Element, keys: dict[str, str]) -> dict[str, Any]:
    """Return the attributes of a node or an edge, by their names."""
    attributes = {
        keys.get(child.get("key", ""), ""): (child.text or "").strip()
        for child in element
        if _local_tag(child) == "data"
    }
    return {name: text for name, text in attributes.items() if name}


def is_node_link(tree: Any) -> bool:
    """Return whether what a file holds is node-link data."""
    return isinstance(tree, dict) and "nodes" in tree and any(key in tree for key in _EDGES)


def graph_of_node_link(tree: dict[str, Any], where: str) -> LinkGraph:
    """Return the network of NetworkX' node-link data.

    >>> edge = {"source": "a", "target": "b", "bandwidth": "100 GB/s", "latency": "1 us"}
    >>> graph_of_node_link({"directed": False, "nodes": [{"id": "a"}, {"id": "b"}], "links": [edge]}, "x").links
    2
    """
    nodes: list[tuple[str, dict[str, Any]]] = []
    for index, node in enumerate(_read_mappings(tree, "nodes", where)):
        require("id" in node, f"{where}: nodes.{index}", node, "has no id")
        nodes.append((str(node["id"]), node))
    key = next(name for name in _EDGES if name in tree)
    links: list[NamedLink] = []
    for edge in _read_mappings(tree, key, where):
        links += _read_edge(edge.get("source"), edge.get("target"), edge, tree.get("directed", False) is True, where)
    return _build_network(nodes, links, where)


def _read_mappings(tree: dict[str, Any], key: str, where: str) -> list[dict[str, Any]]:
    entries = tree[key]
    fits = isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries)
    require(fits, f"{where}: {key}", entries, "must be a list of mappings")
    return list(entries)


def _read_edge(source: Any, target: Any, attributes: dict[str, Any], directed: bool, where: str) -> list[NamedLink]:
    location = f"{where}: edge {source}→{target}"
    require(source is not None and target is not None, location, "", "has two ends")
    require(source != target, location, source, "a link joins two different nodes")
    link = NamedLink(str(source), str(target), rate_of(attributes, location), latency_of(attributes, location))
    return [link] if directed else [link, link.turned()]


def _build_network(nodes: list[tuple[str, dict[str, Any]]], links: list[NamedLink], where: str) -> LinkGraph:
    names = [name for name, _ in nodes]
    require(len(set(names)) == len(names), f"{where}: nodes", f"{len(names)} nodes", "names a node twice")
    switches = {name for name, about in nodes if str(about.get("type", "")).lower() == "switch"}
    return assemble_graph(sort_names(names), switches, links, where)
