"""What readers of network files share: nodes and links by name, quantities with units, and XML without entities.

XML from outside is parsed without entities, which could expand without end or name files.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cosmic.base.errors import LONGEST_NAME, SpecError, UnknownName, check_text, require
from cosmic.base.units import BYTES_PER_S, SECONDS
from cosmic.base.units import read_quantity as units_read_quantity
from cosmic.network.link_graph import LinkGraph, graph_of

if TYPE_CHECKING:
    from xml.etree import ElementTree

# ---- Nodes of a network by name: how files and options name them, and a network put together from named links

MOST_NODES = 2**20
"""The most accelerators and switches that a network is taken apart into."""


_NUMBERED = re.compile(r"(.*?)(\d{1,18})", re.ASCII)


class NamedLink(NamedTuple):
    """One direction of a cable, between nodes that have names."""

    source: str
    target: str
    bandwidth_bytes_per_s: float
    latency_s: float

    def turned(self) -> NamedLink:
        """Return the other direction of the same cable."""
        return NamedLink(self.target, self.source, self.bandwidth_bytes_per_s, self.latency_s)


def assemble_graph(
    nodes: Iterable[str],
    switches: Collection[str],
    links: Sequence[NamedLink],
    where: str,
    reducing: Collection[str] = (),
) -> LinkGraph:
    """Return the network of *links* between *nodes*; those in *switches* are numbered after the accelerators.

    >>> links = [NamedLink("a", "sw", 1e9, 0.0), NamedLink("sw", "b", 1e9, 0.0)]
    >>> graph = assemble_graph(["a", "sw", "b"], {"sw"}, links, "file")
    >>> graph.npus, graph.switches, graph.names
    (2, 1, ('a', 'b', 'sw'))
    """
    unique = list(dict.fromkeys(check_text(name, f"{where}: node", LONGEST_NAME) for name in nodes))
    check_size(len(unique), where)
    forwarding = set(switches)
    npus = [name for name in unique if name not in forwarding]
    ordered = [*npus, *(name for name in unique if name in forwarding)]
    number_of = {name: number for number, name in enumerate(ordered)}
    require(bool(npus), where, f"{len(unique)} nodes", "a network has at least 1 NPU")
    for name in reducing:
        require(name in forwarding, f"{where}: reducing", name, "is no switch of this network")
    for link in links:
        for end in link[:2]:
            if end not in number_of:
                raise UnknownName.among(f"{where}: link {link.source}→{link.target}", end, "node", number_of)
    rows = [(number_of[link.source], number_of[link.target], link[2], link[3]) for link in links]
    try:
        plain = graph_of(len(npus), rows, len(ordered) - len(npus))
    except SpecError as error:
        raise SpecError(f"{where}: {error.where}", error.value, error.rule) from None
    names = () if _are_numbers(ordered, len(npus)) else tuple(ordered)
    return LinkGraph(
        plain.npus,
        plain.sources,
        plain.targets,
        plain.bandwidth_bytes_per_s,
        plain.latency_s,
        plain.switches,
        frozenset(number_of[name] for name in reducing),
        names,
    )


def check_size(nodes: int, where: str) -> None:
    """Refuse a network that is too large to be taken apart into nodes and links."""
    require(nodes <= MOST_NODES, where, f"{nodes:,} nodes", f"more than {MOST_NODES:,} are not listed one by one")


def _are_numbers(ordered: Sequence[str], npus: int) -> bool:
    """Return whether nodes are called what they would be called without names."""
    return all(name in (str(index), f"s{index - npus}")[: 1 + (index >= npus)] for index, name in enumerate(ordered))


def sort_names(names: Iterable[str]) -> list[str]:
    """Return distinct *names*: by number where all end in one, else in the order in which they come.

    >>> sort_names(["10", "s1", "2", "s0"]), sort_names(["b", "a", "b"])
    (['2', '10', 's0', 's1'], ['b', 'a'])
    """
    unique = list(dict.fromkeys(names))
    parts = [_NUMBERED.fullmatch(name) for name in unique]
    keys = {name: (part[1], int(part[2])) for name, part in zip(unique, parts, strict=True) if part}
    return sorted(unique, key=keys.__getitem__) if len(keys) == len(unique) else unique


def node_of(graph: LinkGraph, name: str, where: str) -> int:
    """Return the node that *name* names: what it is called in its file, or its number, or s0, s1 of the switches.

    >>> from cosmic.network.link_graph import graph_of
    >>> star = graph_of(2, [(0, 2, 1e9, 0.0), (2, 1, 1e9, 0.0)], 1)
    >>> node_of(star, "s0", "--fail"), node_of(star, "2", "--fail")
    (2, 2)
    """
    node = find_node(graph, name)
    if node is None:
        if graph.names:
            raise UnknownName.among(where, name, "node", graph.names)
        switches = f" and switches s0 to s{graph.switches - 1}" if graph.switches else ""
        raise SpecError(where, name, f"no such node; there are NPUs 0 to {graph.npus - 1}{switches}")
    return node


def find_node(graph: LinkGraph, name: str) -> int | None:
    """Return the node that *name* names; None if there is none."""
    if name in graph.names:
        return graph.names.index(name)
    number = name[1:] if not graph.names and name[:1] == "s" else name
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        return None
    node = int(number) + (graph.npus if number != name else 0)
    return node if node < graph.nodes else None


BANDWIDTH_UNITS = {"gbps": 1e9 / 8, "gb_per_s": 1e9, "gib_per_s": 2.0**30, "bytes_per_s": 1.0}
PER_S = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0}
"""Units of a latency that go into a second: to divide is exact where to multiply by 1e-9 is not."""


def rate_of(attributes: dict[str, Any], where: str) -> float:
    """Return the bandwidth among the *attributes* of a link: text with a unit, or a number whose key has the unit.

    >>> rate_of({"bandwidth": "400 Gbps"}, "link"), rate_of({"bandwidth_gbps": 400}, "link")
    (50000000000.0, 50000000000.0)
    """
    if "bandwidth" in attributes:
        return read_quantity(attributes["bandwidth"], BYTES_PER_S, f"{where}.bandwidth")
    key_of_unit = {unit: f"bandwidth_{unit}" for unit in BANDWIDTH_UNITS if f"bandwidth_{unit}" in attributes}
    require(bool(key_of_unit), where, sorted(map(str, attributes)), "states no bandwidth, such as bandwidth: 400 Gbps")
    return next(
        read_number(attributes[key], f"{where}.{key}") * BANDWIDTH_UNITS[unit] for unit, key in key_of_unit.items()
    )


def latency_of(attributes: dict[str, Any], where: str) -> float:
    """Return the latency among the *attributes* of a link, 0 where there is none."""
    if "latency" in attributes:
        return read_quantity(attributes["latency"], SECONDS, f"{where}.latency")
    key_of_unit = {unit: f"latency_{unit}" for unit in PER_S if f"latency_{unit}" in attributes}
    latencies = [read_number(attributes[key], f"{where}.{key}") / PER_S[unit] for unit, key in key_of_unit.items()]
    return latencies[0] if latencies else 0.0


def read_quantity(text: Any, dimension: Any, where: str) -> float:
    """Return a quantity with its unit; an error is at *where*."""
    try:
        return units_read_quantity(text, dimension)
    except SpecError as error:
        raise SpecError(where, error.value, error.rule) from None


def read_number(text: Any, where: str) -> float:
    """Return a finite number that *text* states.

    >>> read_number("0.5", "latency")
    0.5
    """
    try:
        value = float(text) if not isinstance(text, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    require(math.isfinite(value), where, text, "must be a number")
    return value


def read_whole_number(text: Any, where: str, least: int = 0) -> int:
    """Return a whole number that *text* states, *least* or more.

    >>> read_whole_number("8", "npus", 1)
    8
    """
    rule = f"must be a whole number from {least} on"
    if isinstance(text, str):
        require(text.isascii() and text.isdigit() and len(text) < 19, where, text, rule)
        text = int(text)
    require(isinstance(text, int) and not isinstance(text, bool) and text >= least, where, text, rule)
    return int(text)


# ---- XML from outside: parsed without entities, which could expand without end or name files

_DOCTYPE = re.compile(r"<!(DOCTYPE|ENTITY)", re.IGNORECASE)


def parse_xml(text: str, where: str) -> ElementTree.Element:
    """Return the root element of *text*; refuse a DOCTYPE, without which there are no entities.

    >>> parse_xml("<algo ngpus='2'/>", "a.xml").get("ngpus")
    '2'
    """
    from xml.etree import ElementTree  # noqa: PLC0415  only where a file is XML

    require(not _DOCTYPE.search(text), where, "<!DOCTYPE", "a document type and entities are not read")
    try:
        return ElementTree.fromstring(text)
    except (ElementTree.ParseError, ValueError, LookupError) as error:  # an unknown encoding is a LookupError
        raise SpecError(where, text[:40], f"is no valid XML: {error}") from None
