"""What a job takes on a cluster: its design on so many accelerators, evaluated by the cost model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cosmic.catalog.systems import split_size, system
from cosmic.cost.shapes import together
from cosmic.design import schema
from cosmic.design.batch import batch_of
from cosmic.design.network import Network
from cosmic.design.point import DesignPoint
from cosmic.errors import SpecError, join, require
from cosmic.evaluation import Infeasible, evaluate
from cosmic.fleets.jobs import Job
from cosmic.fleets.requests import Demand
from cosmic.fleets.tiers import Tier, Traffic
from cosmic.mapping.completing import complete
from cosmic.step.network_load import network_loads, sent_collectives
from cosmic.step.profile import profile

POINTS = 9
"""How many factors of contention a step is evaluated at; in between it is interpolated."""


class Catalogue:
    """The demands of all jobs on one cluster, each found once: many jobs are alike."""

    def __init__(self, name: str, folder: Path, tier: Tier) -> None:
        self._name, self._folder, self._tier = name, folder, tier
        self._found: dict[tuple[str, int], Demand | Infeasible] = {}

    def options(self, job: Job) -> tuple[Demand, ...] | Infeasible:
        """Return what a job takes on each number of accelerators that it may have, fewest first; or why none will do.

        Where none is stated, it is the least on which it runs.
        """
        most = self._tier.npus
        wanted = job.terms.npus
        numbers = [each for each in wanted or self._sizes() if each <= most]
        if not numbers:
            asked = " or ".join(f"{each:,}" for each in wanted)
            return Infeasible((f"it asks for {asked} accelerators of {most:,}",))
        found: list[Demand] = []
        reasons: tuple[str, ...] = ()
        for number in numbers:
            demand = self._demand(job, number)
            if isinstance(demand, Infeasible):
                reasons = demand.reasons
            else:
                found.append(demand)
                if not wanted:
                    break
        return tuple(found) or Infeasible(reasons)

    def _sizes(self) -> list[int]:
        """Return the numbers of accelerators that are tried where none is stated: parts of a node, then nodes."""
        node, most = self._tier.node, self._tier.npus
        inside = [
            each for each in (1 << power for power in range(node.bit_length())) if node % each == 0 and each < node
        ]
        return [*inside, *(node << power for power in range((most // node).bit_length()))]

    def _demand(self, job: Job, npus: int) -> Demand | Infeasible:
        key = _alike(job), npus
        if key not in self._found:
            self._found[key] = self._evaluated(job, npus)
        return self._found[key]

    def _evaluated(self, job: Job, npus: int) -> Demand | Infeasible:
        tree: dict[str, Any] = {"model": job.model, "system": sized(self._name, npus)}
        if job.workload:
            tree["workload"] = job.workload
        try:
            return demand_of(complete(tree, self._folder), self._tier)
        except SpecError as error:
            if error.where == "system":
                raise SpecError(join(job.where, "npus"), npus, error.rule) from None
            raise error.inside(job.where) from None


def _alike(job: Job) -> str:
    """Return a text that jobs of the same model and mapping share; of what is not plain, its place in the file."""
    plain = isinstance(job.model, str) and all(isinstance(each, str | int | float) for each in job.workload.values())
    return repr((job.model, sorted(job.workload.items(), key=str))) if plain else job.where


def sized(name: str, npus: int) -> str:
    """Return the name of the part of a system that has so many accelerators.

    >>> sized("dgx-h100:512", 64), sized("tpu-v5p:4x64", 32), sized("tpu-v5p:4x64", 128)
    ('dgx-h100:64', 'tpu-v5p:32', 'tpu-v5p:2x64')
    """
    stem, count = split_size(name)
    _, times, each = count.rpartition("x")
    if times and npus > int(each):
        require(npus % int(each) == 0, "npus", npus, f"must be a multiple of the {each} accelerators of a slice")
        return f"{stem}:{npus // int(each)}x{each}"
    return f"{stem}:{npus}"


def cluster_network(name: str, folder: Path) -> Network:
    """Return the network of a whole system."""
    entry: Mapping[str, Any] = system(name, folder)
    network: Network = schema.read(Network, entry["network"], "network")
    return network


def demand_of(point: DesignPoint, tier: Tier) -> Demand | Infeasible:
    """Return what a design takes that runs on a part of the cluster of *tier*, or why it cannot run."""
    require(point.serving is None, "workload", "serving", "a job of a fleet runs steps, and serves no requests")
    dims = point.network.dims
    crosses = point.network.npus > tier.group and bool(dims)
    outer = f"network.dims.{len(dims) - 1}"
    alone = schema.assign(point, {f"{outer}.oversubscription": 1.0}) if crosses else point
    metrics = evaluate(alone)
    if isinstance(metrics, Infeasible):
        return metrics
    factors, steps_s = [1.0], [metrics.step_s]
    sent = _traffic(alone) if crosses else ()
    if sent and tier.oversubscription > 1:
        for place in range(1, POINTS):
            factors.append(tier.oversubscription ** (place / (POINTS - 1)))
            # Uplinks that others use as well leave it so much less bandwidth, wherever its own leaves end.
            slowed = evaluate(
                schema.assign(alone, {f"{outer}.bandwidth": dims[-1].bandwidth_bytes_per_s / factors[-1]})
            )
            if isinstance(slowed, Infeasible):
                return slowed
            steps_s.append(max(slowed.step_s, steps_s[-1]))
    npus = max(point.network.npus, 1)
    return Demand(
        npus=npus,
        held=held_npus(npus, dims[0].npus if dims else 1, tier.node),
        tokens=metrics.throughput_per_s * metrics.step_s,
        memory_bytes=metrics.memory_bytes,
        capacity_bytes=point.memory.capacity_bytes,
        traffic=sent,
        factors=tuple(factors),
        steps_s=tuple(steps_s),
        mapping=_mapping(point),
    )


def held_npus(npus: int, inner: int, node: int) -> int:
    """Return the accelerators that a job holds: whole nodes, where it uses *inner* of each and nobody has the rest.

    >>> held_npus(256, 64, 72), held_npus(64, 8, 8), held_npus(4, 4, 8), held_npus(8, 8, 1)
    (288, 64, 4, 8)
    """
    return npus if inner >= node or node % inner == 0 else npus // inner * node


def _traffic(point: DesignPoint) -> tuple[Traffic, ...]:
    """Return what an accelerator of the first stage sends into the outermost dimension, by part of the step.

    How far each part reaches is that of its largest collective there.
    """
    step, outer = profile(batch_of(point), "first"), len(point.network.dims) - 1
    spans: dict[str, tuple[float, Traffic]] = {}
    for use in sent_collectives(step):
        span = together([step.network.shapes[axis] for axis in use.axes])[outer]
        size = float(use.bytes) * float(use.calls)
        if float(span.members) > 1 and size > spans.get(use.part, (-1.0,))[0]:
            reach = (max(2, round(float(span.members))), max(1, round(float(span.step))))
            spans[use.part] = size, Traffic(0.0, *reach, everywhere=use.kind == "all_to_all")
    loads = [load for load in network_loads(step) if load.dimension == outer and load.bytes > 0]
    return tuple(replace(spans[load.part][1], bytes=load.bytes) for load in loads if load.part in spans)


def _mapping(point: DesignPoint) -> str:
    """Return the degrees of parallelism of a design in words."""
    degrees = {axis: getattr(point.workload, axis) for axis in ("tp", "cp", "pp", "ep", "dp")}
    return " ".join(f"{axis}{size}" for axis, size in degrees.items() if size > 1) or "one accelerator"
