"""ASTRA-sim's input files: system JSON, network YAML, remote-memory JSON.

Reads every key that ASTRA-sim reads, and warns of keys that ASTRA-sim ignores or that change nothing here. Where
ASTRA-sim leaves a value uninitialised, the default is the first that its documentation names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cosmic.base.errors import UnknownName, require
from cosmic.base.files import exists, read_bytes
from cosmic.design.collective_layer import algorithms
from cosmic.design.plain_data import load_yaml, parse_json
from cosmic.traces.trace import CollectiveType

TOPOLOGIES = ("Ring", "FullyConnected", "Switch")
COLLECTIVES = {
    "all-reduce": CollectiveType.ALL_REDUCE,
    "all-gather": CollectiveType.ALL_GATHER,
    "reduce-scatter": CollectiveType.REDUCE_SCATTER,
    "all-to-all": CollectiveType.ALL_TO_ALL,
}
"""The collectives that have algorithms, by their names in the system JSON."""
OURS = "cosmic:"
"""Begins the name of an algorithm as the closed form prices it, extensions' too: `cosmic:halving_doubling`."""
ALGORITHMS = ("ring", "direct", "halvingDoubling", "doubleBinaryTree", "inSwitch")
MOST_CHUNKS = 2**16
LEAST_QUANTITY, MOST_QUANTITY = 1e-9, 1e18
"""The range of a system's numbers that are not 0."""
FLAT = {"oneRing": "ring", "oneDirect": "direct", "oneHalvingDoubling": "halvingDoubling"}
"""Algorithms that treat all dimensions as one."""
MEMORY_TYPES = (
    "NO_MEMORY_EXPANSION",
    "PER_NPU_MEMORY_EXPANSION",
    "PER_NODE_MEMORY_EXPANSION",
    "MEMORY_POOL",
)
OF_THE_BUS = ("L", "o", "g", "G", "local-reduction-delay")
IGNORED = {
    "boost-mode": "ASTRA-sim ignores it",
    "trace-enabled": "use --timeline",
    "local-mem-trace-filename": "use --timeline",
}


@dataclass(frozen=True, slots=True)
class Algorithm:
    """The algorithm of a collective in one dimension."""

    name: str
    window: int | None = None
    """Number of peers that `direct` serves at once; all of them if None."""
    flat: bool = False
    """Treats all dimensions as one."""


@dataclass(frozen=True, slots=True)
class SharedBus:
    """The bus between NPU and memory-access unit, in LogGP's terms: latency, overhead, gap, gap per byte [ns]."""

    latency_ns: int
    overhead_ns: int
    gap_ns: int
    gap_ns_per_byte: float


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """How each rank computes, and how it splits collectives into chunks, queues, sends and reduces them."""

    scheduling_policy: str = "LIFO"
    collective_optimization: str = "localBWAware"
    intra_dimension_scheduling: str = "FIFO"
    inter_dimension_scheduling: str = "ascending"
    active_chunks: int = 1
    splits: int = 1
    endpoint_delay_ns: int = 10
    local_reduction_delay: int = 1
    bus: SharedBus | None = None
    peak_flop_per_s: float = 0.0
    memory_bytes_per_s: float = 0.0
    roofline: bool = False
    replay_only: bool = False
    implementations: Mapping[CollectiveType, tuple[Algorithm, ...]] = field(default_factory=dict)
    custom: Mapping[CollectiveType, str] = field(default_factory=dict)
    """Prefixes of traces that implement a collective in place of an algorithm."""
    custom_by_node: Mapping[int, str] = field(default_factory=dict)
    """The same for single nodes, by id."""
    track_local_mem: bool = False
    """Whether the memory of the tensors that nodes state is tracked."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AstraSimDimension:
    """One dimension of ASTRA-sim's network."""

    topology: str
    npus: int
    bandwidth_gib_per_s: float
    """In units of 2**30 bytes, as in ASTRA-sim."""
    latency_ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteMemory:
    """ASTRA-sim's remote memory."""

    type: str = "NO_MEMORY_EXPANSION"
    latency_ns: int = 0
    bandwidth_gb_per_s: float = 0.0
    npus_per_node: int = 1


# ---- reading


def read_system(path: str | Path, injection_scale: float = 1.0) -> System:
    """Return the system of a system JSON; *injection_scale* multiplies its endpoint delay."""
    where = str(path)
    data = _require_object(where, _read_json(path))
    return system_from_keys(data, where=where, injection_scale=injection_scale, beside=Path(path).parent)


def system_from_keys(
    data: Mapping[str, Any], *, where: str = "system", injection_scale: float = 1.0, beside: Path = Path()
) -> System:
    """Return the system that the keys of a system JSON describe.

    A file that they name is looked up in the working directory, then *beside* the JSON.
    """
    read = _Keys(where, data)
    require(0 <= injection_scale <= 2**31, "injection_scale", injection_scale, "must be a number from 0 to 2^31")
    values: dict[str, Any] = {
        "scheduling_policy": read.choice("scheduling-policy", ("LIFO", "FIFO", "EXPLICIT")),
        "collective_optimization": read.choice("collective-optimization", ("localBWAware", "baseline")),
        "intra_dimension_scheduling": read.choice("intra-dimension-scheduling", INTRA),
        "inter_dimension_scheduling": read.choice("inter-dimension-scheduling", INTER),
        "active_chunks": read.whole_number("active-chunks-per-dimension", 1, at_least=1),
        "splits": read.whole_number("preferred-dataset-splits", 1, at_least=1, at_most=MOST_CHUNKS),
        "endpoint_delay_ns": 10,
        "local_reduction_delay": read.whole_number("local-reduction-delay", 1),
        "peak_flop_per_s": read.number("peak-perf", 0.0) * 1e12,
        "memory_bytes_per_s": read.number("local-mem-bw", 0.0) * 1e9,
        "roofline": bool(read.number("roofline-enabled", 0)),
        "replay_only": bool(read.number("replay-only", 0)),
        "track_local_mem": bool(read.number("track-local-mem", 0)),
    }
    if "endpoint-delay" in data:
        values["endpoint_delay_ns"] = int(read.whole_number("endpoint-delay", 10) * injection_scale)
    bus = SharedBus(
        read.whole_number("L", 0), read.whole_number("o", 0), read.whole_number("g", 0), read.number("G", 0.0)
    )
    if read.number("model-shared-bus", 0) == 1:
        values["bus"] = bus
    values["implementations"] = {
        kind: tuple(_read_algorithm(read.where(f"{name}-implementation"), text) for text in listed)
        for name, kind in COLLECTIVES.items()
        if (listed := read.names(f"{name}-implementation"))
    }
    values["custom"] = {
        kind: read.only(f"{name}-implementation-custom")
        for name, kind in COLLECTIVES.items()
        if f"{name}-implementation-custom" in data
    }
    if per_node := data.get("per-node-custom-implementation"):
        values["custom_by_node"] = _remote_memory_by_node(
            read.where("per-node-custom-implementation"), per_node, beside
        )
    warned = tuple(f"{read.where(key)}: {why}" for key, why in IGNORED.items() if data.get(key))
    if "bus" not in values:
        warned += tuple(f"{read.where(key)}: counts with model-shared-bus only" for key in OF_THE_BUS if data.get(key))
    warned += tuple(
        f"{read.where(f'{name}-implementation')}: doubleBinaryTree runs an all-reduce in its place, as in ASTRA-sim"
        for name, kind in COLLECTIVES.items()
        if kind != CollectiveType.ALL_REDUCE
        and Algorithm("doubleBinaryTree") in values["implementations"].get(kind, ())
    )
    known_keys = {*read.seen, *IGNORED, "per-node-custom-implementation"}
    unknown = tuple(f"{read.where(key)}: no such key, ignored" for key in data if key not in known_keys)
    system = System(**values, warnings=warned + unknown)
    if system.roofline and not system.replay_only:
        for key, value in (("peak-perf", system.peak_flop_per_s), ("local-mem-bw", system.memory_bytes_per_s)):
            require(value > 0, read.where(key), data.get(key), "a roofline needs a positive rate")
    return system


INTRA = ("FIFO", "RG", "smallestFirst", "lessRemainingPhaseFirst")
INTER = ("ascending", "roundRobin", "offlineGreedy", "offlineGreedyFlex")
_SPELLINGS = {"themis": "offlineGreedy", "Themis": "offlineGreedy", "baseline": "ascending"}


def _read_algorithm(where: str, text: Any) -> Algorithm:
    """Return the algorithm that *text* names: ASTRA-sim's, or after `cosmic:` one that the closed form prices.

    >>> _read_algorithm("", "direct4"), _read_algorithm("", "oneRing")
    (Algorithm(name='direct', window=4, flat=False), Algorithm(name='ring', window=None, flat=True))
    """
    require(isinstance(text, str), where, text, "must name an algorithm")
    match = re.fullmatch(r"(direct|oneDirect)([0-9]{1,9})", text)
    name, window = (match[1], int(match[2])) if match else (text, None)
    if text.startswith(OURS):
        algorithms.check(text.removeprefix(OURS), where)
        return Algorithm(text)
    if name not in ALGORITHMS and name not in FLAT:
        raise UnknownName.among(where, text, "algorithm", [*ALGORITHMS, *FLAT])
    require(window is None or window >= 1, where, text, "serves at least one peer at once")
    return Algorithm(FLAT.get(name, name), window, name in FLAT)


def read_astra_sim_network(path: str | Path) -> tuple[AstraSimDimension, ...]:
    """Return the dimensions of a network YAML, the innermost first."""
    where = str(path)
    data = _require_object(where, load_yaml(Path(path)))
    lists: dict[str, list[Any]] = {}
    for key in ("topology", "npus_count", "bandwidth", "latency"):
        value = data.get(key)
        require(isinstance(value, list) and len(value) > 0, f"{where}: {key}", value, "must be a list")
        lists[key] = list(value or [])
    for key in data:
        require(key in lists, f"{where}: {key}", data[key], "no such key")
    dims = len(lists["topology"])
    for key, value in lists.items():
        require(len(value) == dims, f"{where}: {key}", value, f"one for each of {dims} dimensions")
    return tuple(
        _read_dimension(where, index, *values) for index, values in enumerate(zip(*lists.values(), strict=True))
    )


def _read_dimension(
    where: str, index: int, topology: Any, npus: Any, bandwidth: Any, latency: Any
) -> AstraSimDimension:
    if topology not in TOPOLOGIES:
        raise UnknownName.among(f"{where}: topology.{index}", topology, "topology", TOPOLOGIES)
    is_integer = isinstance(npus, int) and not isinstance(npus, bool)
    require(
        is_integer and 2 <= npus <= 2**24, f"{where}: npus_count.{index}", npus, "a dimension joins at least 2 NPUs"
    )
    rates = []
    for key, quantity, least in (("bandwidth", bandwidth, LEAST_QUANTITY), ("latency", latency, 0)):
        value = float(quantity) if isinstance(quantity, str) and _POWER_OF_TEN.fullmatch(quantity) else quantity
        real = isinstance(value, int | float) and not isinstance(value, bool)
        require(
            real and least <= value < 1e15, f"{where}: {key}.{index}", quantity, f"must be a number from {least:g} on"
        )
        rates.append(float(value))
    return AstraSimDimension(topology, npus, *rates)


_POWER_OF_TEN = re.compile(r"[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]{1,3}", re.ASCII)
"""A number that YAML 1.1 reads as a string."""


def read_remote_memory(path: str | Path) -> RemoteMemory:
    """Return the remote memory of a remote-memory JSON."""
    where = str(path)
    read = _Keys(where, _require_object(where, _read_json(path)))
    memory = RemoteMemory(
        type=read.choice("memory-type", MEMORY_TYPES),
        latency_ns=read.whole_number("remote-mem-latency", 0),
        bandwidth_gb_per_s=read.number("remote-mem-bw", 0.0),
        npus_per_node=read.whole_number("num-npus-per-node", 1, at_least=1),
    )
    if memory.type != "NO_MEMORY_EXPANSION":
        require(
            memory.bandwidth_gb_per_s > 0, read.where("remote-mem-bw"), memory.bandwidth_gb_per_s, "must be positive"
        )
    return memory


# ---- keys


class _Keys:
    """The keys of a JSON object, each checked as it is read."""

    def __init__(self, where: str, data: Mapping[str, Any]) -> None:
        self._where, self._data = where, data
        self.seen: set[str] = set()

    def where(self, key: str) -> str:
        return f"{self._where}: {key}"

    def _read_key(self, key: str, default: Any) -> Any:
        self.seen.add(key)
        return self._data.get(key, default)

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        value = self._read_key(key, choices[0])
        meant = _SPELLINGS.get(value, value) if value not in choices and isinstance(value, str) else value
        if meant not in choices:
            raise UnknownName.among(self.where(key), value, "value", choices)
        return str(meant)

    def number(self, key: str, default: float) -> float:
        value = self._read_key(key, default)
        value = int(value) if isinstance(value, bool) else value
        real = isinstance(value, int | float) and (value == 0 or LEAST_QUANTITY <= value < MOST_QUANTITY)
        require(real, self.where(key), value, f"must be 0, or a number from {LEAST_QUANTITY:g} to {MOST_QUANTITY:g}")
        return float(value)

    def whole_number(self, key: str, default: int, *, at_least: int = 0, at_most: int = 2**31) -> int:
        value = self.number(key, default)
        rule = f"must be a whole number from {at_least} to {at_most:,}"
        require(value == int(value) and at_least <= value <= at_most, self.where(key), self._data.get(key), rule)
        return int(value)

    def names(self, key: str) -> list[Any]:
        value = self._read_key(key, [])
        require(isinstance(value, list), self.where(key), value, "must be a list, one for each dimension")
        return list(value)

    def only(self, key: str) -> str:
        value = self._read_key(key, None)
        rule = "must be a list with exactly one prefix of traces"
        require(isinstance(value, list) and len(value) == 1 and isinstance(value[0], str), self.where(key), value, rule)
        return str(value[0])


def _read_json(path: str | Path) -> Any:
    return parse_json(read_bytes(path), Path(path).name)


def _require_object(where: str, data: Any) -> Mapping[str, Any]:
    require(isinstance(data, dict), "file", where, "must hold an object: keys and values")
    return dict(data)


def _remote_memory_by_node(where: str, path: Any, beside: Path) -> dict[int, str]:
    require(isinstance(path, str), where, path, "must be the path of a YAML file")
    from_here = exists(path) or not exists(beside / path)
    data = _require_object(where, load_yaml(Path(path) if from_here else beside / path))
    for key, value in data.items():
        valid = isinstance(key, int) and isinstance(value, str)
        require(valid, f"{where}: {key}", value, "must map a node's id to a prefix of traces")
    return {int(key): str(value) for key, value in data.items()}
