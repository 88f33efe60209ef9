"""The inputs of one simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cosmic.errors import UnknownName, require
from cosmic.graphs.graph import LinkGraph
from cosmic.simulation.event.inputs import RemoteMemory, System
from cosmic.simulation.event.network import Network
from cosmic.traces.checks import check
from cosmic.traces.trace import Ints, TraceSet

BACKENDS = ("unaware", "aware")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The inputs of one simulation."""

    traces: TraceSet
    groups: dict[str, tuple[int, ...]]
    system: System
    network: Network
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
            check(script)

    @property
    def order_may_differ(self) -> bool:
        """Whether ranks may begin chunks in different orders because two chunks end at one moment."""
        plain = self.backend == "unaware" and self.compat and not self.rendezvous
        return self.queues_per_dim > 1 and not (plain and self.system.intra_dimension_scheduling == "FIFO")
