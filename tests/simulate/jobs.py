"""Small jobs to simulate, written down in a line or two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cosmic.simulate.events.astra_sim_inputs import AstraSimDimension, RemoteMemory, system_from_keys
from cosmic.simulate.events.message_fabrics import SimulatedNetwork
from cosmic.simulate.events.simulation_job import Job
from cosmic.traces.trace import CollectiveType, NodeType, RankTrace, TraceSet, template_of

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
SETTINGS: dict[str, Any] = {
    "scheduling-policy": "LIFO",
    "endpoint-delay": 10,
    "active-chunks-per-dimension": 1,
    "preferred-dataset-splits": 4,
    "collective-optimization": "localBWAware",
    "local-mem-bw": 1000,
    "peak-perf": 100,
    "roofline-enabled": 1,
}
Node = Mapping[str, Any]


def computation(num_ops: int, tensor_size: int, after: Sequence[int] = (), **more: Any) -> Node:
    return {"type": NodeType.COMP, "num_ops": num_ops, "tensor_size": tensor_size, "data": list(after), **more}


def collective(kind: str, size: int, group: str | None = None, after: Sequence[int] = (), **more: Any) -> Node:
    number = CollectiveType[kind.upper()]
    node = {"type": NodeType.COMM_COLL, "comm_type": number, "comm_size": size, "data": list(after), **more}
    return node | ({"group": group} if group is not None else {})


def send(peer: int, size: int, tag: int = 0, after: Sequence[int] = ()) -> Node:
    return {"type": NodeType.COMM_SEND, "peer": peer, "comm_size": size, "comm_tag": tag, "data": list(after)}


def receive(peer: int, size: int, tag: int = 0, after: Sequence[int] = ()) -> Node:
    return {"type": NodeType.COMM_RECV, "peer": peer, "comm_size": size, "comm_tag": tag, "data": list(after)}


def load(size: int, after: Sequence[int] = ()) -> Node:
    return {"type": NodeType.MEM_LOAD, "tensor_size": size, "data": list(after)}


def traces(ranks: Sequence[Sequence[Node]]) -> TraceSet:
    """Return the traces of ranks; nodes are numbered as they stand, groups and peers named; equal ranks share."""
    made: dict[str, Any] = {}
    found = []
    for nodes in ranks:
        groups: list[str] = []
        peers: list[int] = []
        rows = []
        for place, node in enumerate(nodes):
            row = {"id": place, "name": f"node {place}", **node}
            for key, known in (("group", groups), ("peer", peers)):
                if key in row:
                    if row[key] not in known:
                        known.append(row[key])
                    row[key] = known.index(row[key])
            rows.append(row)
        template = made.setdefault(repr(rows), None) or template_of(rows)
        made[repr(rows)] = template
        found.append(RankTrace(template, tuple(groups), tuple(peers)))
    return TraceSet(tuple(found))


def network(*dims: tuple[str, int, float, float]) -> SimulatedNetwork:
    """Return a network: topology, NPUs, bandwidth [GB/s of 2**30], latency [ns] of each dimension."""
    return SimulatedNetwork(tuple(AstraSimDimension(*dim) for dim in dims))


def job(
    ranks: Sequence[Sequence[Node]], net: SimulatedNetwork, algorithms: Sequence[str] = ("ring",), **more: Any
) -> Job:
    """Return a job; settings of ASTRA-sim's system file are given with underscores, as are fields of `Job`."""
    fields = {
        key: more.pop(key) for key in ("backend", "queues_per_dim", "rendezvous", "compat", "graph") if key in more
    }
    groups = {name: tuple(members) for name, members in more.pop("groups", {}).items()}
    memory = more.pop("memory", RemoteMemory())
    settings = SETTINGS | {f"{kind}-implementation": list(algorithms) for kind in KINDS}
    settings |= {key.replace("_", "-"): value for key, value in more.items()}
    system = system_from_keys(settings)
    return Job(traces=traces(ranks), groups=groups, system=system, network=net, memory=memory, **fields)
