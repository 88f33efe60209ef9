"""Read a network from a file of any known format, our YAML among them, and take out its broken and slow links.

.csv               source,target,bandwidth,latency
.yaml .yml         npus, switches and links; or InfraGraph
.json              NetworkX' node-link data, or the keys of the YAML formats
.graphml .xml      GraphML
any other          TACOS' list of links, or ASTRA-sim's physical topology

Our YAML has NPUs, switches and the links between them:

npus: 4                       # or a list of names
switches: [leaf]              # or a number; reducing: [leaf] for those that add up what passes
bandwidth: 400 Gbps           # of links that state none of their own
latency: 700 ns
links:
  - {source: 0, target: leaf, both: true}
  - {source: 1, target: leaf, both: true, bandwidth: 100 Gbps}
fail: [0-leaf, 1-leaf*0.5]    # links to leave out, or to slow down

Links that are broken or slow (``fail``, ``--fail``):

A-B        no link between A and B, in either direction
A>B        no link from A to B
A-B*0.25   links between A and B have a quarter of their bandwidth; so does A>B*0.25
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cosmic.base.errors import SpecError, UnknownName, require, suggest_names
from cosmic.base.files import read_text
from cosmic.design.plain_data import parse_json, parse_yaml
from cosmic.network.link_graph import LinkGraph
from cosmic.network.network_files.named_nodes import (
    NamedLink,
    assemble_graph,
    check_size,
    find_node,
    latency_of,
    node_of,
    rate_of,
    read_number,
    read_whole_number,
)
from cosmic.network.network_files.network_formats import (
    graph_of_infragraph,
    graph_of_node_link,
    is_infragraph,
    is_node_link,
    parse_csv,
    parse_graphml,
    parse_physical_topology,
    parse_tacos,
)

# ---- Networks with broken and slow links

RULE = "write A-B for both directions of a link, A>B for one, A-B*0.25 to slow it"


def degrade_links(graph: LinkGraph, failures: Sequence[str], where: str = "--fail") -> LinkGraph:
    """Return *graph* without the links that *failures* name, or with those links slowed.

    >>> from cosmic.network.link_graph import graph_of
    >>> pair = graph_of(2, [(0, 1, 8e9, 0.0), (1, 0, 8e9, 0.0)])
    >>> degrade_links(pair, ["0>1"]).links, degrade_links(pair, ["0-1*0.25"]).bandwidth_bytes_per_s.tolist()
    (1, [2000000000.0, 2000000000.0])
    """
    rate = graph.bandwidth_bytes_per_s.copy()
    for failure in failures:
        source, target, both, share = _parse_fault(graph, failure, where)
        hit = (graph.sources == source) & (graph.targets == target)
        if both:
            hit |= (graph.sources == target) & (graph.targets == source)
        require(bool(hit.any()), where, failure, "there is no such link")
        rate[hit] *= share
    working = rate > 0
    return replace(
        graph,
        sources=graph.sources[working],
        targets=graph.targets[working],
        bandwidth_bytes_per_s=np.ascontiguousarray(rate[working]),
        latency_s=graph.latency_s[working],
    )


def _parse_fault(graph: LinkGraph, failure: str, where: str) -> tuple[int, int, bool, float]:
    """Return both ends of a failed link, whether both directions fail, and the share of its bandwidth that is left."""
    for link, share in _split_share(failure, where):
        for index, letter in enumerate(link):
            if letter not in "->":
                continue
            ends = [find_node(graph, part.strip()) for part in (link[:index], link[index + 1 :])]
            if ends[0] is not None and ends[1] is not None:
                return ends[0], ends[1], letter == "-", share
    link = failure.rpartition("*")[0] or failure
    for mark in ">-":
        if link.count(mark) == 1:
            for part in link.split(mark):
                node_of(graph, part.strip(), f"{where} {failure}")
    raise SpecError(where, failure, RULE)


def _split_share(failure: str, where: str) -> Iterator[tuple[str, float]]:
    """Yield a link and the share that is left of it; names may have asterisks."""
    link, mark, share = failure.rpartition("*")
    if mark:
        remaining = read_number(share.strip(), f"{where} {failure}")
        require(0 < remaining <= 1, where, failure, "the share of bandwidth that is left is more than 0, and 1 at most")
        yield link, remaining
    yield failure, 0.0


# ---- Networks as YAML: NPUs, switches and the links between them

KEYS = ("npus", "switches", "reducing", "bandwidth", "latency", "links", "fail")
LINK_KEYS = ("source", "target", "bandwidth", "latency", "both")


def is_link_tree(tree: Any) -> bool:
    """Return whether what a file holds is a network of links, and not a design or another format."""
    return isinstance(tree, dict) and "links" in tree and "npus" in tree


def graph_of_tree(tree: dict[str, Any], where: str) -> LinkGraph:
    """Return the network that a YAML file holds.

    >>> link = {"source": 0, "target": 1, "both": True}
    >>> graph_of_tree({"npus": 2, "bandwidth": "1 GB/s", "links": [link]}, "net.yaml").links
    2
    """
    for key, value in tree.items():
        if key not in KEYS:
            raise UnknownName(f"{where}: {key}", value, f"no such key{suggest_names(str(key), KEYS)}")
    npus = _read_names(tree["npus"], f"{where}: npus", "")
    switches = _read_names(tree.get("switches", 0), f"{where}: switches", "s")
    both = set(npus) & set(switches)
    require(not both, f"{where}: switches", sorted(both), "is an NPU too")
    require(isinstance(tree["links"], list), f"{where}: links", tree["links"], "must be a list of links")
    common: dict[str, Any] = {key: tree[key] for key in ("bandwidth", "latency") if key in tree}
    links: list[NamedLink] = []
    for index, entry in enumerate(tree["links"]):
        links += _read_links(entry, common, f"{where}: links.{index}")
    reducing = _read_name_list(tree.get("reducing", []), f"{where}: reducing")
    graph = assemble_graph([*npus, *switches], switches, links, where, reducing)
    return degrade_links(graph, _read_name_list(tree.get("fail", []), f"{where}: fail"), f"{where}: fail")


def _read_names(tree: Any, where: str, prefix: str) -> list[str]:
    """Return the names of nodes from a file that states their number or their names."""
    if isinstance(tree, list):
        names = _read_name_list(tree, where)
        require(len(set(names)) == len(names), where, tree, "names a node twice")
        return names
    count = read_whole_number(tree, where)
    check_size(count, where)
    return [f"{prefix}{number}" for number in range(count)]


def _read_name_list(tree: Any, where: str) -> list[str]:
    require(isinstance(tree, list), where, tree, "must be a list")
    return [_read_name(name, where) for name in tree]


def _read_name(tree: Any, where: str) -> str:
    is_name = isinstance(tree, str | int) and not isinstance(tree, bool)
    require(is_name, where, tree, "a node is named by text or a whole number")
    return str(tree)


def _read_links(entry: Any, common: dict[str, Any], where: str) -> list[NamedLink]:
    """Return the one or two directions of a stated link."""
    require(isinstance(entry, dict), where, entry, "must be a mapping, such as {source: 0, target: 1}")
    for key, value in entry.items():
        if key not in LINK_KEYS:
            raise UnknownName(f"{where}.{key}", value, f"no such key{suggest_names(str(key), LINK_KEYS)}")
    for key in ("source", "target"):
        require(key in entry, where, entry, f"has no {key}")
    both = entry.get("both", False)
    require(isinstance(both, bool), f"{where}.both", both, "must be true or false")
    source, target = _read_name(entry["source"], f"{where}.source"), _read_name(entry["target"], f"{where}.target")
    require(source != target, where, source, "a link joins two different nodes")
    attributes = common | entry
    link = NamedLink(source, target, rate_of(attributes, where), latency_of(attributes, where))
    return [link, link.turned()] if both else [link]


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
