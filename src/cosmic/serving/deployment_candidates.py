"""Deployments to compare: kinds of instances, in numbers of them, under loads, as rows of a batch.

The shape of an instance is how it lays the model on its accelerators.
An instance has tp × pp accelerators for each rank of attention data parallelism. Experts are split over tp (ep 1), or
each is whole and they are spread over all ranks of the instance (ep = tp × ranks), as engines offer it. Instances do
not meet, so a deployment of so many equal ones is a shape and their number.

Unless the mapping is stated, several instances share a host evenly, or one takes whole hosts: 3 of 8 accelerators, or 6
of trays of 4, would leave others idle, or have tensor parallelism across hosts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from cosmic.base.json_types import PositiveCount, json_keys, unit
from cosmic.base.numeric import divisors
from cosmic.design import catalog_entries
from cosmic.design.design_batch import Batch
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import Transformer
from cosmic.design.serving_engine import load_engine
from cosmic.design.serving_layer import Load, PrefillPool, Serving
from cosmic.design.workload_layer import Workload
from cosmic.serving.served_evaluation import DeploymentEstimates, estimate_deployments
from cosmic.serving.serving_metrics import ServingMetrics, Slo, all_hold

# ---- Shapes of engine instances: how one of them lays the model on its accelerators

MOST_STAGES = 16
"""Pipeline stages of an instance; more only add latency."""
MESH = ("tp", "pp", "dp", "ep", "etp")
OF_INSTANCE = ("tp", "pp", "ep", "etp")
"""Fields of the mapping of one instance."""
LARGEST_HOST = 8
"""Most accelerators of a host; a larger inner dimension is a rack."""


@dataclass(frozen=True, slots=True, order=True)
class InstanceShape:
    """One engine instance."""

    tp: PositiveCount = 1
    """Tensor parallelism of an instance."""
    pp: PositiveCount = 1
    """Pipeline stages of an instance."""
    ranks: PositiveCount = 1
    """Attention data parallelism of an instance."""
    ep: PositiveCount = 1
    """Expert parallelism of an instance."""

    @property
    def npus(self) -> int:
        """Accelerators of an instance."""
        return self.tp * self.pp * self.ranks

    @property
    def etp(self) -> int:
        """Ranks that split each expert."""
        return self.tp * self.ranks // self.ep

    def mapping(self, instances: int, *, experts: bool) -> dict[str, int]:
        """Return the fields of a workload with so many instances."""
        mapping = {"workload.tp": self.tp, "workload.pp": self.pp, "workload.dp": self.ranks * instances}
        return mapping | ({"workload.ep": self.ep, "workload.etp": self.etp} if experts else {})

    def __str__(self) -> str:
        """Return what differs from a single accelerator."""
        parts = {"tp": self.tp, "pp": self.pp, "attention dp": self.ranks, "ep": self.ep}
        return " · ".join(f"{name} {value}" for name, value in parts.items() if value > 1) or "tp 1"


@json_keys("npus", tp="shape.tp", pp="shape.pp", attention_dp="shape.ranks", ep="shape.ep")
@dataclass(frozen=True, slots=True)
class InstancePool:
    """Equal engine instances."""

    instances: PositiveCount
    """Their number."""
    shape: InstanceShape

    @property
    def npus(self) -> PositiveCount:
        """Accelerators of all of them."""
        return self.shape.npus * self.instances


def pool_of(design: DesignPoint) -> InstancePool:
    """Return the instances of a design that do all, or those that decode."""
    shape = shape_of(design.workload)
    return InstancePool(max(1, design.workload.dp // shape.ranks), shape)


def prefill_pool_of(design: DesignPoint) -> InstancePool | None:
    """Return the instances of a design that only prefill; None in one pool."""
    serving = serving_of(design)
    pool = serving.prefill if serving.disaggregated else None
    if pool is None:
        return None
    return InstancePool(pool.replicas, InstanceShape(pool.tp, pool.pp, pool.dp, pool.ep))


def shape_of(workload: Workload) -> InstanceShape:
    """Return the shape of the instances that a workload's mapping is of."""
    ranks = max(1, workload.expert_tensor * workload.ep // workload.tp)
    return InstanceShape(workload.tp, workload.pp, ranks, workload.ep)


def has_experts(design: DesignPoint) -> bool:
    """Return whether the model of a design has experts."""
    return isinstance(design.model, Transformer) and design.model.experts is not None


def list_shapes(design: DesignPoint, fixed: Mapping[str, Any], most_npus: int | None = None) -> list[InstanceShape]:
    """Return all shapes of which some number fill the accelerators of a design, smallest first.

    *fixed* are fields of the mapping that are held; *most_npus* bounds the accelerators of an instance.
    """
    npus = design.network.npus
    host = None if any(fixed.get(name) is not None for name in OF_INSTANCE) else host_npus(design)
    if host is not None and npus % host:  # not whole hosts itself
        host = None
    # Instances share a host evenly, or take whole ones.
    return sorted(
        (
            shape
            for shape in _all_shapes(design, npus)
            if shape.npus <= (most_npus or npus)
            and _matches_fixed(shape, fixed, npus)
            and (host is None or shape.npus % host == 0 or host % shape.npus == 0)
        ),
        key=lambda shape: (shape.npus, shape.pp, -shape.tp, shape.ep),
    )


def host_npus(design: DesignPoint) -> int | None:
    """Return the accelerators of a host: as the catalog has it, or those of a small inner dimension; None: not known.

    >>> from cosmic.search.mapping.design_completion import load_design
    >>> [host_npus(load_design(f"llama3-8b@{name}:8")) for name in ("gb200-nvl72", "dgx-h100", "tpu-v6e")]
    [4, 8, None]
    """
    accelerator = design.compute.accelerator
    if accelerator in catalog_entries.entry_names("accelerators") and (
        host := catalog_entries.read_entry("accelerators", accelerator).get("host")
    ):
        return int(host)
    dims = design.network.dims
    in_host = bool(dims) and dims[0].npus <= LARGEST_HOST and dims[0].topology != "ring"  # a torus has no hosts
    return dims[0].npus if in_host else None


def _all_shapes(design: DesignPoint, npus: int) -> Iterator[InstanceShape]:
    model = design.model
    layers = getattr(model, "layers", 1)
    experts = model.experts.count if isinstance(model, Transformer) and model.experts is not None else 0
    for tp, pp in product(divisors(npus), divisors(npus)):
        if npus % (tp * pp) or pp > min(MOST_STAGES, layers) or not _splits_heads(model, tp):
            continue
        yield InstanceShape(tp, pp)
        for ranks in divisors(npus // (tp * pp)) if experts else ():
            if tp * ranks > 1 and experts % (tp * ranks) == 0:
                yield InstanceShape(tp, pp, ranks, tp * ranks)


def _splits_heads(model: Any, tp: int) -> bool:
    """Return whether the heads of a model split over so many ranks, as engines have it.

    Groups of keys and values are split, too, or each is copied to equally many ranks.
    """
    if not isinstance(model, Transformer):
        return True
    grouped = model.mla is not None or model.kv_heads % tp == 0 or tp % model.kv_heads == 0
    return model.heads % tp == 0 and model.ffn % tp == 0 and grouped


INSTANCES = "instances"
"""Among fields of a mapping that are held: the number of instances that fill the accelerators."""


def _matches_fixed(shape: InstanceShape, fixed: Mapping[str, Any], npus: int) -> bool:
    dp = npus // (shape.tp * shape.pp)
    degrees = {
        "tp": shape.tp,
        "pp": shape.pp,
        "dp": dp,
        "ep": shape.ep,
        "etp": shape.etp,
        INSTANCES: npus // shape.npus,
    }
    return all(fixed.get(name) in (None, value) for name, value in degrees.items())


# ---- Deployments to compare: kinds of them, in numbers of instances, under loads, as rows of a batch

Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]
MOST_NPUS = 2**20
"""Accelerators of a pool: more are not tried."""


@dataclass(frozen=True, slots=True)
class InstanceKind:
    """The instances of a deployment, whatever their number."""

    shape: InstanceShape
    prefill: InstanceShape | None = None
    """Instances that only prefill; the others then only decode."""
    chunk: int | None = None
    """Most tokens of a step; None where the engine's own."""

    @property
    def npus(self) -> int:
        """Accelerators of one instance of each pool."""
        return self.shape.npus + (self.prefill.npus if self.prefill else 0)

    def __str__(self) -> str:
        """Return it in words."""
        text = f"prefill {self.prefill}, decode {self.shape}" if self.prefill else str(self.shape)
        return text + (f", steps of {self.chunk:,} tokens" if self.chunk else "")


@dataclass(frozen=True, slots=True)
class RequestLoad:
    """The load of requests."""

    input: Annotated[float, unit("tokens")]
    """Mean tokens of a prompt."""
    output: Annotated[float, unit("tokens")]
    """Mean tokens of an answer."""
    concurrency: int | None
    """Requests in flight; None in an open loop."""
    rate: Annotated[float | None, unit("1/s")]
    """Requests a second; None in a closed loop."""

    @classmethod
    def of(cls, load: Load) -> RequestLoad:
        """Return what a load is on average."""
        return cls(load.mean("isl"), load.mean("osl"), load.concurrency, load.rate)


@json_keys(
    "npus",
    "pool",
    "prefill",
    without=("instances", "prefill_instances", "load"),
    max_num_batched_tokens="kind.chunk",
    concurrency="requests.concurrency",
    rate="requests.rate",
)
@dataclass(frozen=True)
class Candidate:
    """A deployment that was compared."""

    kind: InstanceKind
    instances: int
    """Those that decode, or do all."""
    prefill_instances: int
    load: Load
    """Of all instances together."""
    metrics: ServingMetrics
    holds: bool
    """Whether all limits hold."""

    @property
    def npus(self) -> PositiveCount:
        """Accelerators."""
        return self.pool.npus + (self.prefill.npus if self.prefill else 0)

    @property
    def requests(self) -> RequestLoad:
        """The load of requests."""
        return RequestLoad.of(self.load)

    @property
    def pool(self) -> InstancePool:
        """Instances that do all, or those that decode."""
        return InstancePool(self.instances, self.kind.shape)

    @property
    def prefill(self) -> InstancePool | None:
        """Instances that only prefill; None in one pool."""
        return InstancePool(self.prefill_instances, self.kind.prefill) if self.kind.prefill else None

    def __str__(self) -> str:
        """Return its instances in words."""
        if self.kind.prefill is None:
            return f"{self.instances:,} × {self.kind}"
        return (
            f"{self.prefill_instances:,} × {self.kind.prefill} prefill, {self.instances:,} × {self.kind.shape} decode"
        )


@dataclass(frozen=True)
class DeploymentRows:
    """Deployments of one machine: a kind and a number of instances each, all in one pool, or all in two."""

    base: DesignPoint
    kinds: Sequence[InstanceKind]
    instances: Ints
    prefill_instances: Ints
    name: str
    """What the load is: ``concurrency`` or ``rate``."""
    loads: npt.NDArray[np.float64]
    """Of all instances together."""

    @property
    def npus(self) -> Ints:
        """Accelerators of an instance that decodes, or does all."""
        return np.array([kind.shape.npus for kind in self.kinds])

    @cached_property
    def estimates(self) -> DeploymentEstimates:
        """What they achieve."""
        return estimate_deployments(self.batch())

    def holding(self, limits: Sequence[Slo]) -> Flags:
        """Return which of them run and hold all limits."""
        holding: Flags = self.estimates.runs & all_hold(self.estimates.metrics, limits)
        return holding

    def batch(self) -> Batch:
        """Return a design for each.

        Instances in one pool do not meet, so as many as fill the machine stand for those that there are.
        """
        two = self.kinds[0].prefill is not None
        instances = np.minimum(self.instances, MOST_NPUS // self.npus) if two else self.base.network.npus // self.npus
        meshes = [kind.shape.mapping(1, experts=has_experts(self.base)) for kind in self.kinds]
        columns: dict[str, Any] = {path: np.array([mesh[path] for mesh in meshes]) for path in meshes[0]}
        columns["workload.dp"] = columns["workload.dp"] * instances
        load = self.loads * instances / self.instances
        columns[f"serving.load.{self.name}"] = load
        if any(kind.chunk for kind in self.kinds):
            usual = load_engine(serving_of(self.base).engine).max_num_batched_tokens
            columns["serving.max_num_batched_tokens"] = np.array([kind.chunk or usual for kind in self.kinds])
        if two:
            columns |= self._prefill(instances)
        return Batch(_with_kind_of_load(self.base, self.name, two=two), columns)

    def _prefill(self, instances: Ints) -> dict[str, Any]:
        pools = [kind.prefill or InstanceShape() for kind in self.kinds]
        fields = {"tp": "tp", "pp": "pp", "dp": "ranks", "ep": "ep"} | (
            {"etp": "etp"} if has_experts(self.base) else {}
        )
        columns: dict[str, Any] = {
            f"serving.prefill.{name}": np.array([getattr(pool, source) for pool in pools])
            for name, source in fields.items()
        }
        scaled = np.maximum(np.rint(self.prefill_instances * instances / self.instances).astype(np.int64), 1)
        return {**columns, "serving.prefill.replicas": scaled}

    def candidates(self, rows: Sequence[int], limits: Sequence[Slo]) -> list[Candidate]:
        """Return those at *rows* with what they achieve."""
        estimates = self.estimates
        holding = estimates.runs & np.logical_and.reduce([limit.holds(estimates.metrics) for limit in limits] or [True])
        full_load = load_of(self.base)
        result = []
        for row in rows:
            number: Any = float(self.loads[row])
            number = max(1, round(number)) if self.name == "concurrency" else number
            load = replace(full_load, **{"concurrency": None, "rate": None, self.name: number})
            kind = self.kinds[row]
            counts = int(self.instances[row]), int(self.prefill_instances[row]) if kind.prefill else 0
            result.append(Candidate(kind, *counts, load, estimates.metrics_at(row), bool(holding[row])))
        return result


def deployment_rows(
    base: DesignPoint,
    kinds: Sequence[InstanceKind],
    name: str,
    loads: Any,
    instances: Any = 1,
    prefill_instances: Any = 1,
) -> DeploymentRows:
    """Return deployments of *kinds*, each with its number of instances and its load."""

    def spread(value: Any, kind: Any) -> Any:
        return np.broadcast_to(np.asarray(value, dtype=kind), (len(kinds),))

    return DeploymentRows(
        base,
        kinds,
        spread(instances, np.int64),
        spread(prefill_instances, np.int64),
        name,
        spread(loads, np.float64),
    )


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


def as_design(machine: DesignPoint, kind: InstanceKind, instances: int, prefill_instances: int = 0) -> DesignPoint:
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
