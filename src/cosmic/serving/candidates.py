"""Deployments to compare: kinds of them, in numbers of instances, under loads, as rows of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.catalog.engines import load_engine
from cosmic.design.batch import Batch
from cosmic.design.point import DesignPoint
from cosmic.design.serving import Load, PrefillPool, Serving
from cosmic.serving.estimating import Estimates, estimates
from cosmic.serving.outcome import ServingMetrics
from cosmic.serving.shapes import Shape, has_experts
from cosmic.serving.slo import Slo, all_hold

Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
MOST_NPUS = 2**20
"""Accelerators of a pool: more are not tried."""


@dataclass(frozen=True, slots=True)
class Kind:
    """The instances of a deployment, whatever their number."""

    shape: Shape
    prefill: Shape | None = None
    """Instances that only prefill; the others then only decode."""
    chunk: int | None = None
    """Most tokens of a step, if not the engine's own."""

    @property
    def npus(self) -> int:
        """Accelerators of one instance of each pool."""
        return self.shape.npus + (self.prefill.npus if self.prefill else 0)

    def __str__(self) -> str:
        """Return it in words."""
        said = f"prefill {self.prefill}, decode {self.shape}" if self.prefill else str(self.shape)
        return said + (f", steps of {self.chunk:,} tokens" if self.chunk else "")


@dataclass(frozen=True)
class Candidate:
    """A deployment, and what it achieves."""

    kind: Kind
    instances: int
    """Those that decode, or do all."""
    prefill_instances: int
    load: Load
    """Of all instances together."""
    metrics: ServingMetrics
    holds: bool
    """Whether all limits hold."""

    @property
    def npus(self) -> int:
        """Accelerators of all instances."""
        prefill = self.kind.prefill.npus * self.prefill_instances if self.kind.prefill else 0
        return self.kind.shape.npus * self.instances + prefill

    def __str__(self) -> str:
        """Return its instances in words."""
        if self.kind.prefill is None:
            return f"{self.instances:,} × {self.kind}"
        return (
            f"{self.prefill_instances:,} × {self.kind.prefill} prefill, {self.instances:,} × {self.kind.shape} decode"
        )


@dataclass(frozen=True)
class Rows:
    """Deployments of one machine: a kind and a number of instances each, all in one pool, or all in two."""

    base: DesignPoint
    kinds: Sequence[Kind]
    instances: Ints
    prefill_instances: Ints
    name: str
    """What the load is: ``concurrency`` or ``rate``."""
    loads: npt.NDArray[np.float64]
    """Of all instances together."""

    def estimates(self) -> Estimates:
        """Return what they achieve."""
        return estimates(self.batch())

    def batch(self) -> Batch:
        """Return a design for each.

        Instances in one pool do not meet, so as many as fill the machine stand for those that there are.
        """
        two = self.kinds[0].prefill is not None
        npus = np.array([each.shape.npus for each in self.kinds])
        there = np.minimum(self.instances, MOST_NPUS // npus) if two else self.base.network.npus // npus
        meshes = [each.shape.mapping(1, experts=has_experts(self.base)) for each in self.kinds]
        columns: dict[str, Any] = {path: np.array([each[path] for each in meshes]) for path in meshes[0]}
        columns["workload.dp"] = columns["workload.dp"] * there
        load = self.loads * there / self.instances
        columns[f"serving.load.{self.name}"] = load
        if any(each.chunk for each in self.kinds):
            usual = load_engine(serving_of(self.base).engine).max_num_batched_tokens
            columns["serving.max_num_batched_tokens"] = np.array([each.chunk or usual for each in self.kinds])
        if two:
            columns |= self._prefill(there)
        return Batch(_with_kind_of_load(self.base, self.name, two=two), columns)

    def _prefill(self, there: Ints) -> dict[str, Any]:
        pools = [each.prefill or Shape() for each in self.kinds]
        fields = {"tp": "tp", "pp": "pp", "dp": "ranks", "ep": "ep"} | (
            {"etp": "etp"} if has_experts(self.base) else {}
        )
        found: dict[str, Any] = {
            f"serving.prefill.{name}": np.array([getattr(each, source) for each in pools])
            for name, source in fields.items()
        }
        scaled = np.maximum(np.rint(self.prefill_instances * there / self.instances).astype(np.int64), 1)
        return {**found, "serving.prefill.replicas": scaled}

    def candidates(self, found: Estimates, places: Sequence[int], limits: Sequence[Slo]) -> list[Candidate]:
        """Return those at *places* with what they achieve."""
        kept = found.runs & np.logical_and.reduce([each.holds(found.metrics) for each in limits] or [True])
        whole = load_of(self.base)
        result = []
        for place in places:
            number: Any = float(self.loads[place])
            number = max(1, round(number)) if self.name == "concurrency" else number
            load = replace(whole, **{"concurrency": None, "rate": None, self.name: number})
            kind = self.kinds[place]
            counts = int(self.instances[place]), int(self.prefill_instances[place]) if kind.prefill else 0
            result.append(Candidate(kind, *counts, load, found.at(place), bool(kept[place])))
        return result


def rows_of(
    base: DesignPoint, kinds: Sequence[Kind], name: str, loads: Any, instances: Any = 1, prefill_instances: Any = 1
) -> Rows:
    """Return deployments of *kinds*, each with its number of instances and its load."""

    def spread(value: Any, kind: Any) -> Any:
        return np.broadcast_to(np.asarray(value, dtype=kind), (len(kinds),))

    return Rows(
        base,
        kinds,
        spread(instances, np.int64),
        spread(prefill_instances, np.int64),
        name,
        spread(loads, np.float64),
    )


def priced(base: DesignPoint, each: Candidate, limits: Sequence[Slo]) -> Candidate:
    """Return a deployment with what it achieves in closed form: its numbers of instances were changed."""
    name, whole = named_load(each.load)
    rows = rows_of(base, [each.kind], name, whole, each.instances, max(each.prefill_instances, 1))
    return rows.candidates(rows.estimates(), [0], limits)[0]


def holding(found: Estimates, limits: Sequence[Slo]) -> Flags:
    """Return which deployments run and hold all limits."""
    kept: Flags = found.runs & all_hold(found.metrics, limits)
    return kept


def serving_of(design: DesignPoint) -> Serving:
    """Return the serving layer of a design that has one."""
    assert design.serving is not None  # noqa: S101  only such designs are searched
    return design.serving


def load_of(design: DesignPoint) -> Load:
    """Return the load of a design that has one."""
    return serving_of(design).load


def named_load(load: Load) -> tuple[str, float]:
    """Return what a load is stated as, and how much of it.

    >>> named_load(Load(isl=1, osl=1, rate=2.5))
    ('rate', 2.5)
    """
    return ("rate", load.rate) if load.rate is not None else ("concurrency", float(load.concurrency or 1))


def _with_kind_of_load(base: DesignPoint, name: str, *, two: bool) -> DesignPoint:
    load: Mapping[str, Any] = (
        {"concurrency": 1, "rate": None} if name == "concurrency" else {"concurrency": None, "rate": 1.0}
    )
    serving = serving_of(base)
    pool = PrefillPool() if two else None
    return replace(base, serving=replace(serving, load=replace(serving.load, **load), prefill=pool))


def as_design(machine: DesignPoint, kind: Kind, instances: int, prefill_instances: int = 0) -> DesignPoint:
    """Return the design of a deployment on its machine, which has just the accelerators that it takes."""
    fields = kind.shape.mapping(instances, experts=has_experts(machine))
    serving = serving_of(machine)
    pool = None
    if kind.prefill is not None:
        shape = kind.prefill
        etp = shape.etp if has_experts(machine) else None
        pool = PrefillPool(replicas=prefill_instances, tp=shape.tp, pp=shape.pp, dp=shape.ranks, ep=shape.ep, etp=etp)
    chunk = kind.chunk or serving.max_num_batched_tokens
    laid = machine.changed(fields)
    return replace(laid, serving=replace(serving, prefill=pool, max_num_batched_tokens=chunk))
