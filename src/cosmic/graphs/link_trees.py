"""Networks as YAML: NPUs, switches and the links between them.

npus: 4                       # or a list of names
switches: [leaf]              # or a number; reducing: [leaf] for those that add up what passes
bandwidth: 400 Gbps           # of links that state none of their own
latency: 700 ns
links:
  - {source: 0, target: leaf, both: true}
  - {source: 1, target: leaf, both: true, bandwidth: 100 Gbps}
fail: [0-leaf, 1-leaf*0.5]    # links to leave out, or to slow down
"""

from __future__ import annotations

from typing import Any

from cosmic.errors import UnknownName, require, suggestion
from cosmic.graphs.degrading import degraded
from cosmic.graphs.graph import LinkGraph
from cosmic.graphs.nodes import NamedLink, assembled, check_size, latency_of, rate_of, whole_number

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
            raise UnknownName(f"{where}: {key}", value, f"no such key{suggestion(str(key), KEYS)}")
    npus = _names(tree["npus"], f"{where}: npus", "")
    switches = _names(tree.get("switches", 0), f"{where}: switches", "s")
    both = set(npus) & set(switches)
    require(not both, f"{where}: switches", sorted(both), "is an NPU too")
    require(isinstance(tree["links"], list), f"{where}: links", tree["links"], "must be a list of links")
    common: dict[str, Any] = {key: tree[key] for key in ("bandwidth", "latency") if key in tree}
    links: list[NamedLink] = []
    for place, given in enumerate(tree["links"]):
        links += _links(given, common, f"{where}: links.{place}")
    reducing = _list(tree.get("reducing", []), f"{where}: reducing")
    graph = assembled([*npus, *switches], switches, links, where, reducing)
    return degraded(graph, _list(tree.get("fail", []), f"{where}: fail"), f"{where}: fail")


def _names(given: Any, where: str, prefix: str) -> list[str]:
    """Return the names of nodes, of which a file states the number or the names."""
    if isinstance(given, list):
        names = _list(given, where)
        require(len(set(names)) == len(names), where, given, "names a node twice")
        return names
    count = whole_number(given, where)
    check_size(count, where)
    return [f"{prefix}{number}" for number in range(count)]


def _list(given: Any, where: str) -> list[str]:
    require(isinstance(given, list), where, given, "must be a list")
    return [_name(each, where) for each in given]


def _name(given: Any, where: str) -> str:
    is_name = isinstance(given, str | int) and not isinstance(given, bool)
    require(is_name, where, given, "a node is named by text or a whole number")
    return str(given)


def _links(given: Any, common: dict[str, Any], where: str) -> list[NamedLink]:
    """Return the one or two directions of a stated link."""
    require(isinstance(given, dict), where, given, "must be a mapping, such as {source: 0, target: 1}")
    for key, value in given.items():
        if key not in LINK_KEYS:
            raise UnknownName(f"{where}.{key}", value, f"no such key{suggestion(str(key), LINK_KEYS)}")
    for key in ("source", "target"):
        require(key in given, where, given, f"has no {key}")
    both = given.get("both", False)
    require(isinstance(both, bool), f"{where}.both", both, "must be true or false")
    source, target = _name(given["source"], f"{where}.source"), _name(given["target"], f"{where}.target")
    require(source != target, where, source, "a link joins two different nodes")
    whole = common | given
    link = NamedLink(source, target, rate_of(whole, where), latency_of(whole, where))
    return [link, link.turned()] if both else [link]
