"""Networks as plain lists of links: TACOS' text, CSV, and ASTRA-sim's physical topology.

Networks as plain lists of links: TACOS' text, and CSV.

TACOS' list has the number of NPUs on its first line, and then a link a line:

    source target GiB/s us

CSV has the header ``source,target,bandwidth,latency``, with units in the cells (``400 Gbps``, ``700 ns``). Nodes may
have names. A node is a switch where its name begins with ``switch``, or where a column ``source_type`` or
``target_type`` says so.

ASTRA-sim's physical topology, as its ns-3 back end reads it.

nodes switches links         counts; switches are among the nodes
4 5                          the nodes that are switches
0 4 400Gbps 0.0005ms 0       a cable: both ends, rate, delay, share of packets lost
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from io import StringIO
from itertools import chain

import numpy as np

from cosmic.base.errors import SpecError, require
from cosmic.base.files import csv_text
from cosmic.base.units import BYTES_PER_S, SECONDS, format_quantity
from cosmic.network.link_graph import LinkGraph
from cosmic.network.network_files.named_nodes import (
    NamedLink,
    assemble_graph,
    check_size,
    read_number,
    read_quantity,
    read_whole_number,
    sort_names,
)

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
