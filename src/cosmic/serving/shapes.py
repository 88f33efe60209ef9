"""Shapes of engine instances: how one of them lays the model on its accelerators.

An instance has tp × pp accelerators for each rank of attention data parallelism. Experts are split over tp (ep 1), or
each is whole and they are spread over all ranks of the instance (ep = tp × ranks), as engines offer it. Instances do
not meet, so a deployment of so many equal ones is a shape and their number.

Unless the mapping is stated, several instances share a host evenly, or one takes whole hosts: 3 of 8 accelerators, or 6
of trays of 4, would leave others idle, or have tensor parallelism across hosts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

from cosmic import catalog
from cosmic.arithmetic import divisors
from cosmic.design.model import Transformer
from cosmic.design.point import DesignPoint
from cosmic.design.workload import Workload

MOST_STAGES = 16
"""Pipeline stages of an instance; more only add latency."""
MESH = ("tp", "pp", "dp", "ep", "etp")
OF_INSTANCE = ("tp", "pp", "ep", "etp")
"""Fields of the mapping of one instance."""
LARGEST_HOST = 8
"""Most accelerators of a host; a larger inner dimension is a rack."""


@dataclass(frozen=True, slots=True, order=True)
class Shape:
    """One engine instance."""

    tp: int = 1
    pp: int = 1
    ranks: int = 1
    """Ranks of attention data parallelism."""
    ep: int = 1

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
        found = {"workload.tp": self.tp, "workload.pp": self.pp, "workload.dp": self.ranks * instances}
        return found | ({"workload.ep": self.ep, "workload.etp": self.etp} if experts else {})

    def __str__(self) -> str:
        """Return what differs from a single accelerator."""
        parts = {"tp": self.tp, "pp": self.pp, "attention dp": self.ranks, "ep": self.ep}
        return " · ".join(f"{name} {value}" for name, value in parts.items() if value > 1) or "tp 1"


def shape_of(workload: Workload) -> Shape:
    """Return the shape of the instances that a workload's mapping is of."""
    ranks = max(1, workload.expert_tensor * workload.ep // workload.tp)
    return Shape(workload.tp, workload.pp, ranks, workload.ep)


def has_experts(design: DesignPoint) -> bool:
    """Return whether the model of a design has experts."""
    return isinstance(design.model, Transformer) and design.model.experts is not None


def shapes_of(design: DesignPoint, stated: Mapping[str, Any], most: int | None = None) -> list[Shape]:
    """Return all shapes of which some number fill the accelerators of a design, smallest first.

    *stated* are fields of the mapping that are held; *most* bounds the accelerators of an instance.
    """
    npus = design.network.npus
    host = None if any(stated.get(name) is not None for name in OF_INSTANCE) else host_of(design)
    if host is not None and npus % host:  # not whole hosts itself
        host = None
    return sorted(
        (
            each
            for each in _all(design, npus)
            if each.npus <= (most or npus) and _as_stated(each, stated, npus) and _fills(each, host)
        ),
        key=lambda each: (each.npus, each.pp, -each.tp, each.ep),
    )


def host_of(design: DesignPoint) -> int | None:
    """Return the accelerators of a host: as the catalog has it, or those of a small inner dimension; None: not known.

    >>> from cosmic.mapping.completing import load_design
    >>> [host_of(load_design(f"llama3-8b@{name}:8")) for name in ("gb200-nvl72", "dgx-h100", "tpu-v6e")]
    [4, 8, None]
    """
    known = design.compute.accelerator
    if known in catalog.names("accelerators") and (found := catalog.entry("accelerators", known).get("host")):
        return int(found)
    dims = design.network.dims
    in_host = bool(dims) and dims[0].npus <= LARGEST_HOST and dims[0].topology != "ring"  # a torus has no hosts
    return dims[0].npus if in_host else None


def _fills(shape: Shape, host: int | None) -> bool:
    """Return whether instances share a host evenly, or take whole ones."""
    return host is None or shape.npus % host == 0 or host % shape.npus == 0


def _all(design: DesignPoint, npus: int) -> Iterator[Shape]:
    model = design.model
    layers = getattr(model, "layers", 1)
    experts = model.experts.count if isinstance(model, Transformer) and model.experts is not None else 0
    for tp, pp in product(divisors(npus), divisors(npus)):
        if npus % (tp * pp) or pp > min(MOST_STAGES, layers) or not _splits(model, tp):
            continue
        yield Shape(tp, pp)
        for ranks in divisors(npus // (tp * pp)) if experts else ():
            if tp * ranks > 1 and experts % (tp * ranks) == 0:
                yield Shape(tp, pp, ranks, tp * ranks)


def _splits(model: Any, tp: int) -> bool:
    """Return whether the heads of a model split over so many ranks, as engines have it.

    Groups of keys and values are split, too, or each is copied to equally many ranks.
    """
    if not isinstance(model, Transformer):
        return True
    grouped = model.mla is not None or model.kv_heads % tp == 0 or tp % model.kv_heads == 0
    return model.heads % tp == 0 and model.ffn % tp == 0 and grouped


def _as_stated(shape: Shape, stated: Mapping[str, Any], npus: int) -> bool:
    dp = npus // (shape.tp * shape.pp)
    found = {"tp": shape.tp, "pp": shape.pp, "dp": dp, "ep": shape.ep, "etp": shape.etp}
    return all(stated.get(name) in (None, value) for name, value in found.items())
