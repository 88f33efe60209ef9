"""1,024 H100 whose links are described twice: by dimension, and one by one; and what is wrong with one of them.

A unit is 8 nodes of 8 GPUs, a pipeline stage. By dimension, collectives go through NVLink and then through the rails
(BlueConnect, as NCCL does). Link by link, a unit is one dimension whose 64 GPUs may send over any link of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import cosmic
from cosmic import evaluate
from cosmic.design import DesignPoint, Dimension, Fault, Infeasible, Link, Metrics, Network
from cosmic.network import LinkGraph, network_graph

NPUS, GPUS, NODES = 1024, 8, 8
STAGES = NPUS // (GPUS * NODES)
FEW_NODES = 4
"""Of a unit, for a quick look."""
SICK = 3
"""The GPU whose NIC, or NVLink, is not what it should be."""
TEXTBOOK = ("auto", "ring", "direct", "halving_doubling")
SYNTHESIZED = "synthesized"
COMMUNICATION = ("tp", "cp", "ep", "dp", "pp", "weights")


@dataclass(frozen=True)
class Case:
    """A model and what is done with it."""

    name: str
    model: str
    task: Mapping[str, Any]
    why: str

    def loaded(self, system: str = "dgx-h100", **changes: Any) -> DesignPoint:
        """Return the design with the best mapping of a quick search, as many stages as there are units."""
        return _loaded(self.model, system, tuple({"pp": STAGES, **self.task, **changes}.items()))

    @property
    def point(self) -> DesignPoint:
        """The design on the healthy cluster."""
        return self.loaded()

    def smaller(self) -> Case:
        """Return the case for units of few nodes."""
        return replace(self, task={**self.task, "ep": GPUS * FEW_NODES}) if "ep" in self.task else self


@cache
def _loaded(model: str, system: str, task: tuple[tuple[str, Any], ...]) -> DesignPoint:
    return cosmic.load_design(f"{model}@{system}:{NPUS}", dict(task))


PRE_TRAINING = Case(
    "LLaMA-3 405B, large batch",
    "llama3-405b",
    {"sequence": 8192, "global_batch": 2048},
    "16.8 million tokens a step, as in the last phase of its pre-training",
)
SMALL_BATCH = Case(
    "LLaMA-3 405B, small batch",
    "llama3-405b",
    {"sequence": 8192, "global_batch": 128},
    "a million tokens a step, as in fine-tuning, or where a run is made as short as it can be",
)
LONG_CONTEXT = Case(
    "LLaMA-3 405B, long context",
    "llama3-405b",
    {"sequence": 131072, "global_batch": 64, "cp_comm_type": "all_gather"},
    "131,072 tokens a sequence, so that keys and values are gathered across nodes, as Meta does",
)
EXPERTS = Case(
    "DeepSeek-V3",
    "deepseek-v3",
    {"sequence": 4096, "global_batch": 3072, "ep": 64, "precision": "fp8"},
    "experts on all GPUs of a unit, and the batch with which its training began",
)
CASES = (PRE_TRAINING, SMALL_BATCH, LONG_CONTEXT, EXPERTS)


@dataclass(frozen=True)
class Condition:
    """What is wrong with the links of some GPUs in a dimension of a unit: what is left of their bandwidth."""

    name: str
    dim: int = 0
    speed: float = 1.0
    npus: tuple[int, ...] = (SICK,)
    nodes: int = NODES
    """Of a unit."""

    def smaller(self) -> Condition:
        """Return the same in units of few nodes."""
        return replace(self, nodes=FEW_NODES)

    @property
    def faults(self) -> tuple[Fault, ...]:
        """The same in a network whose first dimensions are NVLink and rails."""
        return () if self.speed == 1 else self.at(self.dim, self.speed)

    def at(self, dim: int, speed: float) -> tuple[Fault, ...]:
        """Return faults of the same GPUs in a dimension."""
        return tuple(Fault(npu=npu, dim=dim, speed=speed) for npu in self.npus)

    @property
    def of_nics(self) -> bool:
        """Whether the links between units are as slow: they are those of the rails."""
        return bool(self.faults) and self.dim == 1


HEALTHY = Condition("healthy")
SLOW_NIC = Condition("a NIC at a quarter", 1, 0.25)
NO_NIC = Condition("a NIC broken", 1, 0.0)
SLOW_NVLINK = Condition("NVLink of a GPU at half", 0, 0.5)
MIXED_RAILS = Condition(
    "half of the rails at half",
    1,
    0.5,
    tuple(npu for npu in range(GPUS * NODES) if npu % GPUS >= GPUS // 2),
)
CONDITIONS = (HEALTHY, SLOW_NIC, NO_NIC, SLOW_NVLINK, MIXED_RAILS)
DETOUR = 0.5
"""What a broken NIC leaves of the bandwidth between units: messages take a neighbour's, which has its own to send."""


# ------------------------------------------------------------------------------------------------ two descriptions


def tiers(point: DesignPoint, nodes: int) -> tuple[Dimension, Dimension, Dimension]:
    """Return NVLink, the rails of a unit and those between units, of a design as the catalog has it."""
    nvlink, rails = point.network.dims
    return nvlink, replace(rails, npus=nodes), replace(rails, npus=NPUS // (GPUS * nodes))


def by_dimension(point: DesignPoint, condition: Condition, algorithm: str) -> DesignPoint:
    """Return a design whose collectives go through one dimension after the other."""
    between = condition.at(2, condition.speed) if condition.of_nics else ()
    faults = (*condition.faults, *between)
    return _with(point, Network(dims=tiers(point, condition.nodes), faults=faults), (algorithm,) * 3)


def by_link(point: DesignPoint, condition: Condition, algorithm: str) -> DesignPoint:
    """Return a design whose collectives may use any link of a unit; between units nothing changes."""
    _, rails, between = tiers(point, condition.nodes)
    # Link rates have their efficiency in them; all times of a call are those of the rails, which are the longer ones.
    transport = replace(rails.transport, efficiency=1.0)
    unit = Dimension(topology="graph", npus=GPUS * condition.nodes, links=_links(point, condition), transport=transport)
    faults = condition.at(1, condition.speed or DETOUR) if condition.of_nics else ()
    return _with(point, Network(dims=(unit, between), faults=faults), (algorithm, "auto"))


def _with(point: DesignPoint, network: Network, algorithms: Sequence[str]) -> DesignPoint:
    return replace(point, network=network, collective=replace(point.collective, algorithms=tuple(algorithms)))


def unit_network(point: DesignPoint, condition: Condition) -> Network:
    """Return one unit, with the bandwidth that a library reaches on its links."""
    reached = [
        replace(dim, bandwidth_bytes_per_s=dim.bandwidth_bytes_per_s * dim.transport.efficiency)
        for dim in tiers(point, condition.nodes)[:2]
    ]
    return Network(dims=tuple(reached), faults=condition.faults)


def unit_graph(point: DesignPoint, condition: Condition) -> LinkGraph:
    """Return the links of one unit."""
    return network_graph(unit_network(point, condition))


def _links(point: DesignPoint, condition: Condition) -> tuple[Link, ...]:
    graph = unit_graph(point, condition)
    columns = (graph.sources, graph.targets, graph.bandwidth_bytes_per_s, graph.latency_s)
    return tuple(
        Link(source=source, target=target, bandwidth_bytes_per_s=rate, latency_s=latency)
        for source, target, rate, latency in zip(*(column.tolist() for column in columns), strict=True)
    )


# ------------------------------------------------------------------------------------------------ steps


@dataclass(frozen=True)
class Step:
    """A step, how its collectives are made, and in which description."""

    algorithm: str
    described: str
    metrics: Metrics

    @property
    def step_s(self) -> float:
        """Its seconds."""
        return self.metrics.step_s

    @property
    def exposed_s(self) -> float:
        """Seconds of communication that no compute hides."""
        return sum(self.metrics.breakdown.get(part, 0.0) for part in COMMUNICATION)

    @property
    def how(self) -> str:
        """The algorithm and the description, in words."""
        return f"{self.algorithm.replace('_', '-')}, {self.described}"


def fastest(points: Mapping[tuple[str, str], DesignPoint]) -> Step:
    """Return the shortest step of designs by algorithm and description; one must run."""
    outcomes = {key: evaluate(point) for key, point in points.items()}
    steps = [Step(*key, found) for key, found in outcomes.items() if not isinstance(found, Infeasible)]
    if not steps:
        raise SystemExit(f"none of {', '.join(map(str, points))} can run")
    return min(steps, key=lambda step: step.step_s)


def textbook_step(point: DesignPoint, condition: Condition, algorithms: Sequence[str] = TEXTBOOK) -> Step:
    """Return the shortest step with a textbook algorithm, in the better description."""
    points = {(name, "by dimension"): by_dimension(point, condition, name) for name in algorithms}
    points |= {(name, "by link"): by_link(point, condition, name) for name in algorithms if name != "auto"}
    return fastest(points)


def synthesized_step(point: DesignPoint, condition: Condition) -> Step:
    """Return the shortest step with synthesised collectives, in the better description."""
    return fastest(
        {
            (SYNTHESIZED, "by dimension"): by_dimension(point, condition, SYNTHESIZED),
            (SYNTHESIZED, "by link"): by_link(point, condition, SYNTHESIZED),
        }
    )


def remapped(case: Case, condition: Condition) -> DesignPoint:
    """Return the design with the best mapping of a quick search, for the cluster as it is now; nothing is held."""
    faults = [{"npu": fault.npu, "dim": fault.dim, "speed": fault.speed} for fault in condition.faults]
    found = cosmic.load_design(f"{case.model}@dgx-h100:{NPUS}", {**case.task, "network.faults": faults})
    return replace(case.point, workload=found.workload)


def mapping_of(point: DesignPoint) -> str:
    """Return the degrees of a mapping in words."""
    w = point.workload
    parts = [f"{axis} {getattr(w, axis)}" for axis in ("tp", "cp", "dp", "pp", "ep") if getattr(w, axis) > 1]
    return ", ".join([*parts, w.weight_sharding, w.schedule])
