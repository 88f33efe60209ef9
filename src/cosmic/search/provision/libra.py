"""LIBRA's own inputs as problems: a network, ASTRA-sim 1.0's text workloads, communicators and prices.

    time = sum over layers of compute and collectives of the passes Forward, InputGrad and WeightGrad
    cost = sum over dimensions of NPUs * bandwidth * (link + switch and NIC where it is a switch)

With the loop `tp_dp_overlap` the collectives of WeightGrad, which are data-parallel, run beside the compute of the
backward pass, and take time only where they are longer than it.

What a collective sends in each dimension (`bytes_of_dims`): data enters the innermost dimension first and is shared out
over its p members before it enters the next:

    all-reduce       2 S (p - 1) / p     then S / p
    reduce-scatter     S (p - 1) / p     then S / p
    all-gather         S (p - 1)         then S p, from the outermost dimension inwards; S is what an NPU begins with
    all-to-all         S (p - 1) / p     in every dimension

A switch that reduces takes an NPU's data once and returns the sum once: an all-reduce sends S, and not 2 S (p - 1) / p.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import gcd, isfinite, prod
from pathlib import Path
from typing import Any, Literal, get_args

from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.cluster.cluster_cost import dimension_tiers
from cosmic.design.catalog_entries import CATALOG_FOLDER, load_mapping
from cosmic.search.provision.bandwidth_problem import GIGA, Traffic, TrafficLoad
from cosmic.traces.chakra.workload_files import PHASES, UNUSED, Communicator, Kind, Phase, read_layers

# ---- What a collective sends in each dimension of a hierarchical network, by LIBRA's rules


def bytes_of_dims(
    kind: Kind, size_bytes: float, members: Sequence[int], reducing: Sequence[bool] = ()
) -> tuple[float, ...]:
    """Return the bytes that an NPU sends in each dimension; *reducing* says in which of them switches reduce.

    >>> bytes_of_dims("ALLREDUCE", 64.0, (4, -1, 2)), bytes_of_dims("ALLGATHER", 8.0, (4, -1, 2))
    ((96.0, 0.0, 16.0), (48.0, 0.0, 8.0))
    >>> bytes_of_dims("ALLREDUCE", 64.0, (4, -1, 2), (True, True, False)), bytes_of_dims("ALLTOALL", 64.0, (4, 2))
    ((64.0, 0.0, 16.0), (48.0, 32.0))
    """
    sent = [0.0] * len(members)
    used_dims = [index for index, count in enumerate(members) if count > 1]
    size = size_bytes
    for dim in reversed(used_dims) if kind == "ALLGATHER" else used_dims:
        count = members[dim]
        if kind == "ALLGATHER":
            sent[dim] = size * (count - 1)
            size *= count
            continue
        sent[dim] = size * (count - 1) / count
        if kind == "ALLREDUCE":
            summed = dim < len(reducing) and reducing[dim]
            sent[dim] = min(size, 2.0 * sent[dim]) if summed else 2.0 * sent[dim]
        if kind != "ALLTOALL":
            size /= count
    return tuple(sent)


Loop = Literal["no_overlap", "tp_dp_overlap"]
LOOPS: tuple[Loop, ...] = get_args(Loop)
TOPOLOGIES = {"Ring": "ring", "FullyConnected": "fully_connected", "Switch": "switch"}
TIERS = {"chiplet": "InterChiplet", "package": "InterPackage", "node": "InterNode", "pod": "InterPod"}
NANO = 1e-9
COLLECTIVE_NAMES = {
    "ALLREDUCE": "all-reduce",
    "REDUCESCATTER": "reduce-scatter",
    "ALLGATHER": "all-gather",
    "ALLTOALL": "all-to-all",
}
PASS_NAMES = {"Forward": "forward", "InputGrad": "input-gradient", "WeightGrad": "weight-gradient"}


@dataclass(frozen=True, slots=True)
class LibraNetwork:
    """A network as LIBRA describes it: of every dimension topology, NPUs and tier."""

    topologies: tuple[str, ...]
    npus: tuple[int, ...]
    tiers: tuple[str, ...]
    """Names of the tiers in a cost file, such as `InterPod`."""


@dataclass(frozen=True, slots=True)
class LibraCollective:
    """Collectives of one kind and size in one pass."""

    phase: Phase
    kind: Kind
    size_bytes: float
    times: float = 1.0


@dataclass(frozen=True, slots=True)
class LibraWorkload:
    """A step: compute of each pass, and all collectives."""

    name: str
    compute_s: Mapping[Phase, float]
    collectives: tuple[LibraCollective, ...]
    tensor_parallel: int | None = None
    """How many NPUs share a layer, where it is known; the rest are replicas."""


Prices = Mapping[str, Mapping[str, float]]
"""Dollars for each GB/s of an NPU by tier and part."""


# ---- files


def is_libra_network(data: Any) -> bool:
    """Return whether a YAML file's content is a network of LIBRA."""
    return isinstance(data, Mapping) and "Topology" in data


def read_network(path: str | Path) -> LibraNetwork:
    """Return the network in a YAML file with Topology, NpusCount and CostDimension."""
    return network_of(load_mapping(Path(path)), Path(path).name)


def network_of(data: Mapping[str, Any], where: str) -> LibraNetwork:
    """Return the network that *data* describes; *where* names it in messages."""
    _check_keys(data, ("Topology", "NpusCount", "CostDimension"), where)
    names, npus = _read_list(data, "Topology", where), _read_list(data, "NpusCount", where)
    require(0 < len(names) <= 16, f"{where} Topology", names, "must list 1 to 16 dimensions")
    _check_length(npus, len(names), f"{where} NpusCount")
    for name in names:
        if name not in TOPOLOGIES:
            raise UnknownName.among(f"{where} Topology", name, "topology of LIBRA", TOPOLOGIES)
    for count in npus:
        require(
            _is_integer(count) and 2 <= count <= 2**32, f"{where} NpusCount", count, "a dimension joins at least 2 NPUs"
        )
    tiers = (
        _read_list(data, "CostDimension", where)
        if "CostDimension" in data
        else [TIERS[t] for t in dimension_tiers(len(names))]
    )
    _check_length(tiers, len(names), f"{where} CostDimension")
    require(all(isinstance(tier, str) for tier in tiers), f"{where} CostDimension", tiers, "must list names")
    return LibraNetwork(tuple(TOPOLOGIES[name] for name in names), tuple(npus), tuple(tiers))


def read_communicator(path: str | Path, network: LibraNetwork) -> Communicator:
    """Return the groups of each pass in a YAML file with Forward, InputGrad and WeightGrad."""
    where = Path(path).name
    data = load_mapping(Path(path))
    _check_keys(data, PHASES, where)
    groups: dict[Phase, tuple[int, ...]] = {}
    for phase in PHASES:
        members = _read_list(data, phase, where)
        _check_length(members, len(network.npus), f"{where} {phase}")
        for index, count in enumerate(members):
            valid = _is_integer(count) and (count == UNUSED or 1 <= count <= network.npus[index])
            rule = f"must be -1 or from 1 to the {network.npus[index]} NPUs of dimension {index}"
            require(valid, f"{where} {phase}", count, rule)
        groups[phase] = tuple(members)
    return groups


def read_prices(path: str | Path) -> Prices:
    """Return the prices in a YAML file: of each tier Link, Switch and Nic, in dollars for each GB/s."""
    where = Path(path).name
    prices = {}
    for tier, parts in load_mapping(Path(path)).items():
        require(isinstance(parts, Mapping), f"{where} {tier}", parts, "must map Link, Switch and Nic to dollars")
        _check_keys(parts, ("Link", "Switch", "Nic"), f"{where} {tier}")
        for part, price in parts.items():
            valid = isinstance(price, int | float) and not isinstance(price, bool) and isfinite(price) and price >= 0
            require(valid, f"{where} {tier} {part}", price, "must be dollars for each GB/s")
        prices[str(tier)] = {str(part): float(price) for part, price in parts.items()}
    return prices


def read_workload(path: str | Path) -> LibraWorkload:
    """Return the workload in a text file of ASTRA-sim 1.0, with or without its two lines of header."""
    compute: dict[Phase, float] = dict.fromkeys(PHASES, 0.0)
    counts: dict[tuple[Phase, Kind, float], float] = {}
    for layer in read_layers(path):
        for phase, pass_ in layer.passes.items():
            compute[phase] += pass_.compute_ns * NANO
            if pass_.kind is not None:
                key = (phase, pass_.kind, pass_.size_bytes)
                counts[key] = counts.get(key, 0.0) + 1.0
    collectives = tuple(LibraCollective(*key, times) for key, times in counts.items())
    return LibraWorkload(Path(path).stem, compute, collectives)


def _read_list(data: Mapping[str, Any], key: str, where: str) -> list[Any]:
    value = data.get(key)
    if not isinstance(value, list):
        raise SpecError(f"{where} {key}", value, "must be a list, with an entry for each dimension")
    return value


def _check_keys(data: Mapping[str, Any], allowed: Sequence[str], where: str) -> None:
    for key in data:
        if key not in allowed:
            raise UnknownName.among(where, str(key), "key", allowed)


def _check_length(entries: Sequence[Any], dims: int, where: str) -> None:
    require(len(entries) == dims, where, list(entries), f"must list {dims} entries, one for each dimension")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


# ---- what is carried


@cache
def shipped_workloads() -> dict[str, LibraWorkload]:
    """Return the workloads that LIBRA ships, by name (`catalog/libra.yaml`)."""
    return {
        name: LibraWorkload(
            name,
            {phase: data["compute_ns"][phase] * NANO for phase in PHASES},
            tuple(LibraCollective(c["phase"], c["kind"], float(c["bytes"]), c["times"]) for c in data["collectives"]),
            data.get("tensor_parallel"),
        )
        for name, data in load_mapping(CATALOG_FOLDER / "libra.yaml")["workloads"].items()
    }


def shipped_prices(network: LibraNetwork) -> tuple[Prices, ...]:
    """Return LIBRA's prices for each dimension: those of its tier, with what breaks ties between equal ones."""
    data = load_mapping(CATALOG_FOLDER / "libra.yaml")
    return tuple(
        {
            tier: {part: price + data["tie_break"] * index for part, price in parts.items()}
            for tier, parts in data["cost"].items()
        }
        for index in range(1, len(network.npus) + 1)
    )


def usual_communicator(workload: LibraWorkload, network: LibraNetwork) -> Communicator:
    """Return the groups of a workload: tensor parallelism takes the innermost NPUs, and data parallelism the rest.

    Where nothing is known of tensor parallelism, every pass is among all NPUs.

    >>> network = LibraNetwork(("ring", "fully_connected", "switch"), (4, 8, 32), ("a", "b", "c"))
    >>> usual_communicator(LibraWorkload("", {}, (), 16), network)["WeightGrad"]
    (-1, 2, 32)
    """
    if workload.tensor_parallel is None:
        return dict.fromkeys(PHASES, network.npus)
    remaining, inner, outer = workload.tensor_parallel, [], []
    for count in network.npus:
        shared = gcd(remaining, count)
        remaining //= shared
        inner.append(shared if shared > 1 else UNUSED)
        outer.append(count // shared if shared < count else UNUSED)
    require(
        remaining == 1, workload.name, network.npus, f"have no {workload.tensor_parallel} innermost NPUs: state groups"
    )
    return {"Forward": tuple(inner), "InputGrad": tuple(inner), "WeightGrad": tuple(outer)}


# ---- as a problem


def load_of(
    workload: LibraWorkload,
    network: LibraNetwork,
    communicator: Communicator,
    *,
    loop: Loop = "no_overlap",
    reducing: bool = False,
    weight: float = 1.0,
) -> TrafficLoad:
    """Return a workload on a network; with *reducing*, switches reduce."""
    if loop not in LOOPS:
        raise UnknownName.among("--loop", loop, "training loop", LOOPS)
    switched = tuple(reducing and name == "switch" for name in network.topologies)
    exposed: list[Traffic] = []
    hidden: list[Traffic] = []
    for collective in workload.collectives:
        sent = bytes_of_dims(collective.kind, collective.size_bytes, communicator[collective.phase], switched)
        traffic = Traffic(f"{PASS_NAMES[collective.phase]} {COLLECTIVE_NAMES[collective.kind]}", sent, collective.times)
        beside = loop == "tp_dp_overlap" and collective.phase == "WeightGrad"
        (hidden if beside else exposed).append(traffic)
    compute = dict(workload.compute_s)
    if loop == "no_overlap":
        return TrafficLoad(workload.name, sum(compute.values()), tuple(exposed), weight=weight)
    backward = compute["InputGrad"] + compute["WeightGrad"]
    return TrafficLoad(workload.name, compute["Forward"], tuple(exposed), tuple(hidden), backward, weight)


def usd_per_bandwidth(network: LibraNetwork, prices: Sequence[Prices]) -> tuple[float, ...]:
    """Return the dollars of the whole network for a byte/s of each NPU in every dimension.

    >>> network = LibraNetwork(("ring", "switch"), (4, 8), ("a", "b"))
    >>> usd_per_bandwidth(network, [{"a": {"Link": 2.0}, "b": {"Link": 4.0, "Switch": 13.0, "Nic": 3.0}}] * 2)
    (6.4e-08, 6.4e-07)
    """
    total, prices_of_dims = prod(network.npus), []
    for topology, tier, table in zip(network.topologies, network.tiers, prices, strict=True):
        if tier not in table:
            raise UnknownName.among("CostDimension", tier, "tier of the cost file", table)
        parts = table[tier]
        needed = ("Link", "Switch") if topology == "switch" else ("Link",)
        for part in needed:
            require(part in parts, f"{tier} {part}", "", "the cost file has no such price, and the network needs it")
        nic = parts.get("Nic", 0.0) if topology == "switch" else 0.0
        prices_of_dims.append(total * (sum(parts[part] for part in needed) + nic) / GIGA)
    return tuple(prices_of_dims)
