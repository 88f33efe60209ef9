"""ASTRA-sim's physical topology, as its ns-3 back end reads it.

nodes switches links         counts; switches are among the nodes
4 5                          the nodes that are switches
0 4 400Gbps 0.0005ms 0       a cable: both ends, rate, delay, share of packets lost
"""

from __future__ import annotations

from cosmic.errors import require
from cosmic.graphs.graph import LinkGraph
from cosmic.graphs.nodes import NamedLink, assembled, check_size, plain_number, quantity, whole_number
from cosmic.units import BYTES_PER_S, SECONDS


def parse_physical_topology(text: str, where: str) -> LinkGraph:
    r"""Return the network of a physical topology; each cable is two links.

    >>> graph = parse_physical_topology("3 1 2\n2\n0 2 400Gbps 0.0005ms 0\n1 2 400Gbps 0.0005ms 0\n", "t.txt")
    >>> graph.npus, graph.switches, graph.links, float(graph.latency_s[0])
    (2, 1, 4, 5e-07)
    """
    lines = [(number, line.split()) for number, line in enumerate(text.splitlines(), start=1)]
    kept = [(f"{where} line {number}", words) for number, words in lines if words]
    place, head = kept[0]
    require(len(head) == 3, place, " ".join(head), "the first line is the numbers of nodes, switches and links")
    nodes, switches, cables = (whole_number(word, place) for word in head)
    check_size(nodes, where)
    require(switches < nodes, place, switches, f"a network has at least 1 NPU among its {nodes} nodes")
    rest = kept[1:]
    listed: list[str] = []
    while rest and len(listed) < switches:
        listed += rest.pop(0)[1]
    for name in listed:
        require(whole_number(name, f"{where}: switches") < nodes, f"{where}: switches", name, "is no node")
    rule = f"the second line names the {switches} switches, each once"
    require(len(set(listed)) == len(listed) == switches, f"{where}: switches", " ".join(listed), rule)
    rule = f"the first line says that there are {cables} links"
    require(len(rest) == cables, where, f"{len(rest)} links", rule)
    links = [_link(words, nodes, place) for place, words in rest]
    directions = [each for link in links for each in (link, link.turned())]
    forwarding = {str(int(name)) for name in listed}
    return assembled(map(str, range(nodes)), forwarding, directions, where)


def _link(words: list[str], nodes: int, where: str) -> NamedLink:
    rule = "a link is both ends, rate, delay and error rate, such as 0 4 400Gbps 0.0005ms 0"
    require(len(words) == 5, where, " ".join(words), rule)
    ends = [whole_number(word, where) for word in words[:2]]
    for end in ends:
        require(end < nodes, where, end, f"is no node: there are {nodes}, from 0")
    require(ends[0] != ends[1], where, ends[0], "a link joins two different nodes")
    plain_number(words[4], where)
    rate, delay = quantity(words[2], BYTES_PER_S, where), quantity(words[3], SECONDS, where)
    return NamedLink(str(ends[0]), str(ends[1]), rate, delay)
