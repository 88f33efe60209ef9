"""The inputs of one simulation, and its network file.

The file is ASTRA-sim's network YAML, or a graph of links in any known format.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cosmic.base.errors import UnknownName, require
from cosmic.base.files import read_text
from cosmic.design.plain_data import load_yaml
from cosmic.network.link_graph import LinkGraph
from cosmic.simulate.events.astra_sim_inputs import AstraSimDimension, RemoteMemory, System, read_astra_sim_network
from cosmic.simulate.events.message_fabrics import GRAPH, SimulatedNetwork
from cosmic.traces.trace import Ints, TraceSet
from cosmic.traces.trace_checks import check_traces

# ---- A simulation's network file: ASTRA-sim's network YAML, or a graph of links in any known format

SUFFIXES_OF_TREES = (".yaml", ".yml", ".json")
_DIMENSIONS = re.compile(r"^\s*[\"']?topology[\"']?\s*:", re.MULTILINE)
"""A key of ASTRA-sim's network YAML that no list of links has."""


def read_any_network(
    path: str | Path, failures: Sequence[str] = ()
) -> tuple[tuple[AstraSimDimension, ...], LinkGraph | None]:
    """Return the dimensions of a network file, and its links where it is a graph: then one dimension of all NPUs."""
    graph = _read_graph(Path(path), failures)
    if graph is None:
        rule = "leaves out links of a network that is a graph, and this one has ASTRA-sim's dimensions"
        require(not failures, "--fail", ", ".join(failures), rule)
        return read_astra_sim_network(path), None
    return (dimension_of(graph),), graph


def dimension_of(graph: LinkGraph) -> AstraSimDimension:
    """Return all NPUs of a graph as one dimension; messages take no time by it, but by their links."""
    return AstraSimDimension(GRAPH, graph.npus, 1.0, 0.0)


def _read_graph(path: Path, failures: Sequence[str]) -> LinkGraph | None:
    """Return the graph in a file, every NPU of which reaches every other; None if it holds ASTRA-sim's dimensions."""
    ending = path.suffix.lower()
    tree = load_yaml(path) if ending in SUFFIXES_OF_TREES else None
    if isinstance(tree, dict) and "topology" in tree:
        return None
    if ending not in (*SUFFIXES_OF_TREES, ".csv", ".graphml", ".xml") and _DIMENSIONS.search(read_text(path)):
        return None
    from cosmic.network.link_graph import require_connected  # noqa: PLC0415
    from cosmic.network.network_files.network_file import (  # noqa: PLC0415
        degrade_links,
        graph_of_data,
        is_network_data,
        read_graph,
    )

    if ending not in SUFFIXES_OF_TREES:
        graph = read_graph(path)
    elif is_network_data(tree) or (isinstance(tree, dict) and "links" in tree):
        graph = graph_of_data(tree, path.name)
    else:
        return None
    graph = degrade_links(graph, failures)
    require_connected(graph, where=str(path))
    return graph


BACKENDS = ("unaware", "aware")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The inputs of one simulation."""

    traces: TraceSet
    groups: dict[str, tuple[int, ...]]
    system: System
    network: SimulatedNetwork
    memory: RemoteMemory = field(default_factory=RemoteMemory)
    scripts: Mapping[str, TraceSet] = field(default_factory=dict)
    """Traces that implement a collective in place of an algorithm, by prefix."""
    given_ns: Mapping[int, Ints] | None = None
    """Durations of nodes by the `id` of their template, in place of those that system and network would give."""
    graph: LinkGraph | None = None
    """The links of a network that is a graph; `network` then has its NPUs in one dimension."""
    backend: str = "unaware"
    queues_per_dim: int = 1
    rendezvous: bool = False
    compat: bool = True
    """Compute as ASTRA-sim does, even where it multiplies bandwidth. Otherwise concurrent messages share an NPU's
    bandwidth, and groups take the endpoint delay of the system."""

    def __post_init__(self) -> None:
        if self.backend not in BACKENDS:
            raise UnknownName.among("backend", self.backend, "back end", BACKENDS)
        rule = "messages queue on the links of a network that is a graph: leave it out, or use aware"
        require(self.graph is None or self.backend == "aware", "backend", self.backend, rule)
        count = self.queues_per_dim
        require(isinstance(count, int) and 1 <= count <= 2**16, "queues_per_dim", count, "must be at least 1")
        npus, ranks = self.network.npus, len(self.traces.ranks)
        require(npus == ranks, self.traces.where, ranks, f"the network has {npus} NPUs: one trace for each")
        for name, members in self.groups.items():
            absent = [rank for rank in members if not 0 <= rank < npus]
            require(not absent, f"group {name}", absent[:1] or None, f"the network has ranks 0 to {npus - 1}")
        for rank, trace in enumerate(self.traces.ranks):
            own = trace.own_rank
            rule = f"sends and receives as this rank, but is rank {rank}"
            require(own in (None, rank), f"{self.traces.where}.{rank}.et", own, rule)
        for script in self.scripts.values():
            check_traces(script)

    @property
    def order_may_differ(self) -> bool:
        """Whether ranks may begin chunks in different orders because two chunks end at one moment."""
        plain = self.backend == "unaware" and self.compat and not self.rendezvous
        return self.queues_per_dim > 1 and not (plain and self.system.intra_dimension_scheduling == "FIFO")
