"""Networks as other tools write them: lists of links (TACOS, CSV, ASTRA-sim), graphs with attributes, and InfraGraph.

*TACOS' list* has the number of NPUs on its first line, and then a link a line:

    source target GiB/s us

*CSV* has the header ``source,target,bandwidth,latency``, with units in the cells (``400 Gbps``, ``700 ns``). Nodes may
have names. A node is a switch where its name begins with ``switch``, or where a column ``source_type`` or
``target_type`` says so.

*ASTRA-sim's physical topology*, as its ns-3 back end reads it: the numbers of nodes, switches and links, then the nodes
that are switches, then a cable a line, with both ends, rate, delay and the share of packets that is lost (``0 4 400Gbps
0.0005ms 0``).

*GraphML, and NetworkX' node-link JSON.* An edge states its ``bandwidth`` and ``latency`` as text with a unit, or as
numbers whose names have one (``bandwidth_gbps``, ``latency_us``). A node whose ``type`` is ``switch`` keeps no data. An
edge of an undirected graph is two links.

*InfraGraph* has instances of devices, whose components are joined by links. A vertex is ``instance.i.component.j``.
Components of the kind ``npu`` are accelerators; all others (NICs, ports, switch chips, CPUs) forward data and keep none.
Those that lead nowhere are left out, and one between just two others is part of the cable: its two links are one with
the lower bandwidth and both latencies. Every edge carries both directions. Not read, as its public documentation does
not say enough: rings of endpoints, devices composed of devices, and bandwidths in transfers a second, which need the
width of the link.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Iterator
from io import StringIO
from itertools import chain
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np

from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.base.files import csv_text
from cosmic.base.units import BYTES_PER_S, SECONDS, format_quantity
from cosmic.network.link_graph import LinkGraph
from cosmic.network.network_files.named_nodes import (
    NamedLink,
    assemble_graph,
    check_size,
    latency_of,
    parse_xml,
    rate_of,
    read_number,
    read_quantity,
    read_whole_number,
    sort_names,
)

# ---- plain lists of links


# ---- Networks as plain lists of links: TACOS' text, and CSV

COLUMNS = ("source", "target", "bandwidth", "latency")
TYPES = ("source_type", "target_type")
KINDS = ("npu", "switch")
GIB, US_PER_S = 2.0**30, 1e6


def parse_tacos(text: str, where: str) -> LinkGraph:
    r"""Return the network of TACOS' list.

    >>> graph = parse_tacos("2\n0 1 50 0.5\n1 0 50 0.5\n", "ring.txt")
    >>> graph.npus, graph.links, float(graph.latency_s[0])
    (2, 2, 5e-07)
    """
    # Errors name a line by its number in the file: comments and blank lines count.
    stripped = ((number, line.partition("#")[0].strip()) for number, line in enumerate(text.splitlines(), start=1))
    lines = [(number, line) for number, line in stripped if line]
    require(bool(lines), where, "", "is empty: the first line is the number of NPUs")
    npus = read_whole_number(lines[0][1].strip(), f"{where} line {lines[0][0]}", 1)
    check_size(npus, where)
    rows = [_parse_tacos_link(line, npus, f"{where} line {number}") for number, line in lines[1:]]
    columns = list(zip(*rows, strict=True)) if rows else [(), (), (), ()]
    try:
        # Ends, GiB/s and microseconds, as TACOS reads them.
        return LinkGraph(
            npus,
            np.array(columns[0], np.int64),
            np.array(columns[1], np.int64),
            np.array(columns[2], np.float64) * GIB,
            np.array(columns[3], np.float64) / US_PER_S,
        )
    except SpecError as error:
        raise SpecError(f"{where}: {error.where}", error.value, error.rule) from None


def _parse_tacos_link(line: str, npus: int, where: str) -> tuple[int, int, float, float]:
    words = line.split()
    require(len(words) == 4, where, line, "a link is four numbers: source, target, GiB/s and microseconds")
    ends = [read_whole_number(word, where) for word in words[:2]]
    for end in ends:
        require(end < npus, where, end, f"is no node: there are {npus}, from 0")
    require(ends[0] != ends[1], where, line, "a link joins two different nodes")
    return ends[0], ends[1], read_number(words[2], where), read_number(words[3], where)


def tacos_text(graph: LinkGraph) -> str:
    r"""Return a network without switches as TACOS' list.

    >>> tacos_text(parse_tacos("2\n0 1 50 0.5\n", "x"))
    '2\n0 1 50 0.5\n'
    """
    require(not graph.switches, "switches", graph.switches, "TACOS' list of links has none; write CSV")
    rows = zip(graph.sources, graph.targets, graph.bandwidth_bytes_per_s / GIB, graph.latency_s * US_PER_S, strict=True)
    lines = (f"{source} {target} {_format_number(rate)} {_format_number(late)}" for source, target, rate, late in rows)
    return "\n".join([str(graph.npus), *lines]) + "\n"


def _format_number(value: float) -> str:
    return repr(float(f"{value:.15g}")).removesuffix(".0")


# ---- CSV


def parse_csv(text: str, where: str) -> LinkGraph:
    r"""Return the network of a CSV file.

    >>> rows = "source,target,bandwidth,latency\n0,switch1,400 Gbps,1 us\nswitch1,1,400 Gbps,1 us\n"
    >>> graph = parse_csv(rows, "net.csv")
    >>> graph.npus, graph.switches, graph.describe(0)
    (2, 1, 'link 0→switch1')
    """
    links: list[NamedLink] = []
    switches: set[str] = set()
    for number, row in _read_rows(text, where):
        location = f"{where} line {number}"
        for end, kind in zip(row[:2], row[4:], strict=True):
            require(bool(end), location, end, "a node has a name or a number")
            require(kind.lower() in ("", *KINDS), location, kind, f"a node is one of {', '.join(KINDS)}")
            if kind.lower() == "switch" or (not kind and end.lower().startswith("switch")):
                switches.add(end)
        require(row[0] != row[1], location, row[0], "a link joins two different nodes")
        rate = read_quantity(row[2], BYTES_PER_S, f"{location}: bandwidth")
        links.append(NamedLink(row[0], row[1], rate, read_quantity(row[3], SECONDS, f"{location}: latency")))
    require(bool(links), where, "", "has no links")
    return assemble_graph(sort_names(chain.from_iterable(link[:2] for link in links)), switches, links, where)


def _read_rows(text: str, where: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the cells of each row in the order of `COLUMNS` and `TYPES`, with the number of its line."""
    reader = csv.reader(StringIO(text.removeprefix("\ufeff")), strict=True)
    try:
        head = [cell.strip().lower() for cell in next(reader, [])]
        rule = f"the header must be {','.join(COLUMNS)}, with {' and '.join(TYPES)} where nodes are switches"
        allowed = {*COLUMNS, *TYPES}
        require(set(COLUMNS) <= set(head) <= allowed and len(set(head)) == len(head), where, ",".join(head), rule)
        indices = [head.index(name) if name in head else -1 for name in (*COLUMNS, *TYPES)]
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            location = f"{where} line {reader.line_num}"
            require(
                len(cells) == len(head), location, len(cells), f"has other than the {len(head)} cells of the header"
            )
            yield reader.line_num, [cells[index].strip() if index >= 0 else "" for index in indices]
    except csv.Error as error:
        raise SpecError(f"{where} line {reader.line_num}", "", f"is no valid CSV: {error}") from None


def links_csv(graph: LinkGraph) -> str:
    r"""Return a network as CSV, which `parse_csv` reads back.

    >>> links_csv(parse_tacos("2\n0 1 50 0.5\n", "x"))
    'source,target,bandwidth,latency\n0,1,53.6870912 GB/s,500 ns\n'
    """
    rows = []
    rates, latencies = graph.bandwidth_bytes_per_s.tolist(), graph.latency_s.tolist()
    for source, target, rate, latency in zip(
        graph.sources.tolist(), graph.targets.tolist(), rates, latencies, strict=True
    ):
        kinds = [KINDS[end >= graph.npus] for end in (source, target)] if graph.switches else []
        names = [graph.name(source), graph.name(target)]
        rows.append([*names, format_quantity(rate, BYTES_PER_S), format_quantity(latency, SECONDS), *kinds])
    return csv_text([*COLUMNS, *(TYPES if graph.switches else ())], rows)


# ---- ASTRA-sim's physical topology, as its ns-3 back end reads it


def parse_physical_topology(text: str, where: str) -> LinkGraph:
    r"""Return the network of a physical topology; each cable is two links.

    >>> graph = parse_physical_topology("3 1 2\n2\n0 2 400Gbps 0.0005ms 0\n1 2 400Gbps 0.0005ms 0\n", "t.txt")
    >>> graph.npus, graph.switches, graph.links, float(graph.latency_s[0])
    (2, 1, 4, 5e-07)
    """
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), start=1)]
    numbered = [(f"{where} line {number}", words) for number, words in lines if words]
    location, head = numbered[0]
    require(len(head) == 3, location, " ".join(head), "the first line is the numbers of nodes, switches and links")
    nodes, switches, cables = (read_whole_number(word, location) for word in head)
    check_size(nodes, where)
    require(switches < nodes, location, switches, f"a network has at least 1 NPU among its {nodes} nodes")
    rest = numbered[1:]
    listed: list[str] = []
    while rest and len(listed) < switches:
        listed += rest.pop(0)[1]
    for name in listed:
        require(read_whole_number(name, f"{where}: switches") < nodes, f"{where}: switches", name, "is no node")
    rule = f"the second line names the {switches} switches, each once"
    require(len(set(listed)) == len(listed) == switches, f"{where}: switches", " ".join(listed), rule)
    rule = f"the first line says that there are {cables} links"
    require(len(rest) == cables, where, f"{len(rest)} links", rule)
    links = [_parse_link(words, nodes, location) for location, words in rest]
    directions = [direction for link in links for direction in (link, link.turned())]
    forwarding = {str(int(name)) for name in listed}
    return assemble_graph(map(str, range(nodes)), forwarding, directions, where)


def _parse_link(words: list[str], nodes: int, where: str) -> NamedLink:
    rule = "a link is both ends, rate, delay and error rate, such as 0 4 400Gbps 0.0005ms 0"
    require(len(words) == 5, where, " ".join(words), rule)
    ends = [read_whole_number(word, where) for word in words[:2]]
    for end in ends:
        require(end < nodes, where, end, f"is no node: there are {nodes}, from 0")
    require(ends[0] != ends[1], where, ends[0], "a link joins two different nodes")
    read_number(words[4], where)
    rate, delay = read_quantity(words[2], BYTES_PER_S, where), read_quantity(words[3], SECONDS, where)
    return NamedLink(str(ends[0]), str(ends[1]), rate, delay)


# ---- GraphML, and node-link JSON


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


# ---- InfraGraph


_SLICE = re.compile(r"([^\[\]]+?)(?:\[(\d*)(:?)(\d*)\])?")
BANDWIDTHS = {"gigabits_per_second": 1e9 / 8, "gigabytes_per_second": 1e9}
LATENCIES = {"ms": 1e3, "us": 1e6, "ns": 1e9}
"""Units that go into a second."""


class _Cable(NamedTuple):
    """An edge: both ends, and what it carries."""

    ends: tuple[str, str]
    bandwidth_bytes_per_s: float
    latency_s: float


def is_infragraph(tree: Any) -> bool:
    """Return whether what a file holds is an infrastructure."""
    inner = tree.get("infrastructure", tree) if isinstance(tree, dict) else None
    return isinstance(inner, dict) and "devices" in inner and "instances" in inner


def graph_of_infragraph(tree: dict[str, Any], where: str) -> LinkGraph:
    """Return the network of an infrastructure."""
    inner = tree.get("infrastructure", tree)
    devices = _index_by_name(inner, "devices", where)
    instances = _index_by_name(inner, "instances", where)
    npus: list[str] = []
    cables: list[_Cable] = []
    counts = {name: _count_components(device, f"{where}: {name}") for name, device in devices.items()}
    for name, instance in instances.items():
        location = f"{where}: instances.{name}"
        device = instance.get("device")
        if device not in devices:
            raise UnknownName.among(f"{location}.device", device, "device", devices)
        copies = read_whole_number(instance.get("count"), f"{location}.count", 1)
        check_size(copies * sum(count for count, _ in counts[device].values()), location)
        inner_cables = list(_device_cables(devices[device], counts[device], f"{where}: {device}"))
        for copy in range(copies):
            start = f"{name}.{copy}."
            for part, (count, kind) in counts[device].items():
                npus += [f"{start}{part}.{number}" for number in range(count)] if kind == "npu" else []
            cables += [cable._replace(ends=(start + cable.ends[0], start + cable.ends[1])) for cable in inner_cables]
    cables += _outer_cables(inner, instances, counts, where)
    require(bool(npus), where, f"{len(instances)} instances", "no component is an npu")
    kept = _drop_dead_ends(cables, set(npus))
    switches = dict.fromkeys(end for cable in kept for end in cable.ends if end not in set(npus))
    links = [direction for cable in kept for direction in _both_directions(cable)]
    return assemble_graph([*npus, *switches], switches.keys(), links, where)


def _both_directions(cable: _Cable) -> tuple[NamedLink, NamedLink]:
    link = NamedLink(*cable.ends, cable.bandwidth_bytes_per_s, cable.latency_s)
    return link, link.turned()


def _index_by_name(tree: dict[str, Any], key: str, where: str) -> dict[str, dict[str, Any]]:
    """Return the members of a list of mappings, by their names."""
    entries = tree.get(key) or []
    mappings = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    fits = isinstance(entries, list) and len(mappings) == len(entries)
    fits = fits and all(isinstance(mapping.get("name"), str) for mapping in mappings)
    require(fits, f"{where}: {key}", entries, "must be a list of mappings, each with a name")
    return {mapping["name"]: mapping for mapping in mappings}


def _count_components(device: dict[str, Any], where: str) -> dict[str, tuple[int, str]]:
    """Return the number and the kind of each component of a device."""
    counts: dict[str, tuple[int, str]] = {}
    for name, part in _index_by_name(device, "components", where).items():
        kind = part.get("choice", part.get("type", "custom"))
        require(kind != "device", f"{where}: {name}", kind, "devices composed of devices are not read")
        counts[name] = (read_whole_number(part.get("count", 1), f"{where}: {name}.count", 1), str(kind))
    return counts


def _device_cables(device: dict[str, Any], counts: dict[str, tuple[int, str]], where: str) -> Iterator[_Cable]:
    links = _index_by_name(device, "links", where)
    for index, edge in enumerate(_read_edges(device, where)):
        ends = []
        for key in ("ep1", "ep2"):
            component = _read_endpoint(edge, key, f"{where}: edges.{index}").get("component")
            ends.append(_expand_slice(component, counts, f"{where}: edges.{index}.{key}"))
        yield from _join_endpoints(ends[0], ends[1], edge, links, f"{where}: edges.{index}")


def _outer_cables(
    tree: dict[str, Any],
    instances: dict[str, dict[str, Any]],
    counts: dict[str, dict[str, tuple[int, str]]],
    where: str,
) -> Iterator[_Cable]:
    links = _index_by_name(tree, "links", where)
    copies = {name: (int(instance["count"]), "") for name, instance in instances.items()}
    for index, edge in enumerate(_read_edges(tree, where)):
        ends = []
        for key in ("ep1", "ep2"):
            location, point = f"{where}: edges.{index}.{key}", _read_endpoint(edge, key, f"{where}: edges.{index}")
            outer = _expand_slice(point.get("instance"), copies, location)
            device = instances[outer[0].rpartition(".")[0]]["device"]
            inner = _expand_slice(point.get("component"), counts[device], location)
            ends.append([f"{copy}.{part}" for copy in outer for part in inner])
        yield from _join_endpoints(ends[0], ends[1], edge, links, f"{where}: edges.{index}")


def _read_edges(tree: dict[str, Any], where: str) -> list[dict[str, Any]]:
    edges = tree.get("edges") or []
    fits = isinstance(edges, list) and all(isinstance(edge, dict) for edge in edges)
    require(fits, f"{where}: edges", edges, "must be a list of mappings")
    return list(edges)


def _read_endpoint(edge: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    point = edge.get(key)
    require(isinstance(point, dict), f"{where}.{key}", point, "must be a mapping with a component")
    return dict(point or {})


def _expand_slice(text: Any, counts: dict[str, tuple[int, str]], where: str) -> list[str]:
    """Expand a name with a slice, such as ``nic[0:2]``; a name alone stands for all."""
    match = _SLICE.fullmatch(text) if isinstance(text, str) else None
    require(match is not None, where, text, "is a name with a slice, such as nic[0:2]")
    name, first, colon, stop = match.groups() if match else ("", "", "", "")
    if name not in counts:
        raise UnknownName.among(where, name, "component or instance", counts)
    count = counts[name][0]
    begin = int(first) if first else 0
    end = begin + 1 if first and not colon else int(stop) if stop else count
    require(begin < end <= count, where, text, f"there are {count} of them, from 0")
    return [f"{name}.{number}" for number in range(begin, end)]


def _join_endpoints(
    firsts: list[str], seconds: list[str], edge: dict[str, Any], links: dict[str, dict[str, Any]], where: str
) -> Iterator[_Cable]:
    """Yield the cables of an edge: each end with its counterpart, or each with each."""
    scheme = edge.get("scheme", "many2many" if edge.get("many2many") is True else "one2one")
    require(scheme in ("one2one", "many2many"), f"{where}.scheme", scheme, "is not read: one2one and many2many are")
    if edge.get("link") not in links:
        raise UnknownName.among(f"{where}.link", edge.get("link"), "link", links)
    rate, latency = _read_link(links[edge["link"]], f"{where}: link {edge['link']}")
    if scheme == "one2one":
        rule = f"one2one joins as many ends to as many: here {len(firsts)} to {len(seconds)}"
        require(len(firsts) == len(seconds), where, scheme, rule)
        pairs = list(zip(firsts, seconds, strict=True))
    else:
        pairs = [(first, second) for first in firsts for second in seconds]
    seen: set[frozenset[str]] = set()
    for first, second in pairs:
        if first != second and (both := frozenset((first, second))) not in seen:
            seen.add(both)
            yield _Cable((first, second), rate, latency)


def _read_link(link: dict[str, Any], where: str) -> tuple[float, float]:
    """Return the bandwidth and the latency of a link."""
    physical = link.get("physical") or {}
    bandwidth = physical.get("bandwidth") if isinstance(physical, dict) else None
    rates = bandwidth if isinstance(bandwidth, dict) else {}
    rule = f"states no bandwidth in {' or '.join(BANDWIDTHS)}"
    require(bool(set(BANDWIDTHS) & set(rates)), where, bandwidth, rule)
    rate = next(read_number(rates[key], where) * worth for key, worth in BANDWIDTHS.items() if key in rates)
    late = physical.get("latency") or {}
    require(isinstance(late, dict), where, late, "states its latency as a mapping, such as {ns: 300}")
    return rate, next((read_number(late[key], where) / worth for key, worth in LATENCIES.items() if key in late), 0.0)


def _drop_dead_ends(cables: list[_Cable], npus: set[str]) -> list[_Cable]:
    """Return the cables without dead ends, and with what lies between just two others as part of the cable."""
    remaining = dict(enumerate(cables))
    cables_at: dict[str, set[int]] = defaultdict(set)
    for number, cable in remaining.items():
        for end in cable.ends:
            cables_at[end].add(number)
    pending = [end for end in cables_at if end not in npus]
    while pending:
        node = pending.pop()
        own = sorted(cables_at[node])
        if not 0 < len(own) <= 2:
            continue
        ends = [next(end for end in remaining[number].ends if end != node) for number in own]
        for number, end in zip(own, ends, strict=True):
            cables_at[end].discard(number)
        merged = [remaining.pop(number) for number in own]
        cables_at[node].clear()
        if len(own) == 2 and ends[0] != ends[1]:
            # A node between just two others, such as a NIC, is part of the cable: the slower rate, and both latencies.
            rate, late = min(cable[1] for cable in merged), merged[0].latency_s + merged[1].latency_s
            remaining[own[0]] = _Cable((ends[0], ends[1]), rate, late)
            for end in ends:
                cables_at[end].add(own[0])
        pending += [end for end in ends if end not in npus]
    return list(remaining.values())
