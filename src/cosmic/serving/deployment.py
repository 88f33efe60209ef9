"""A deployment: engine instances in one pool, or in two of which one only prefills. One design, or many at once.

A design's mapping is of all instances that decode. One instance has tp × pp accelerators, times the ranks of attention
data parallelism that share its experts:

    ranks     = max(1, etp ep / tp)        experts spread over more devices than tp need several ranks of attention
    instances = dp / ranks

The accelerators of the design's network are those of both pools. A pool's own network is cut out of it from the inside
outwards, so that whole instances stay together (`cosmic.serving.machines`). A pool on a system of its own is beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.catalog.engines import load_engine
from cosmic.design.batch import Batch, Names, batch_of, has_gaps, known
from cosmic.design.engine import Engine
from cosmic.design.network import MOST_NPUS, topologies
from cosmic.design.point import DesignPoint
from cosmic.design.serving import Load, Serving
from cosmic.errors import require
from cosmic.serving.machines import kept_share, machine_of, sizes_within
from cosmic.serving.price import StepPrice, with_collectives

MESH = ("tp", "pp", "dp", "ep", "etp")
"""What a prefill pool says of its mapping."""
GROUPED = (
    *("serving.engine", "serving.kv_cache_dtype", "serving.draft_tokens", "serving.prefill.system"),
    *("serving.load.arrival_cv", "serving.load.rounds"),
)
"""Fields that deployments of a group share; so they do in what arrays cannot compute with."""
OF_LINK = ("topology", "bandwidth", "latency", "oversubscription", "fabric.build", "fabric.radix")
"""Fields in which dimensions of one torus agree, besides their transport."""
OF_MACHINE = ("compute.", "memory.", "network.", "collective.", "node.")
"""Fields of the machine that a design runs on."""


@dataclass(frozen=True)
class Pool:
    """Equal engine instances: of one design, or of many."""

    batch: Batch
    """The designs: dp counts the ranks of attention of all instances, the network is the pool's own."""
    engine: Engine

    @property
    def design(self) -> DesignPoint:
        """The one design, or the base of many."""
        return self.batch.base

    @property
    def serving(self) -> Serving:
        """Limits of an instance, of the one design or the base of many."""
        return _layer(self.design)

    @cached_property
    def ranks(self) -> Any:
        """Ranks of attention data parallelism of one instance."""
        return ranks_of(self.batch)

    @cached_property
    def instances(self) -> Any:
        """Engine instances."""
        return np.maximum(self.batch["workload.dp"] // self.ranks, 1)

    @property
    def npus(self) -> Any:
        """Accelerators."""
        return mesh_npus(self.batch)

    @cached_property
    def price(self) -> StepPrice:
        """What steps of one of its instances take."""
        steps, layer = one_instance(without_load(self.batch)), self.serving
        chosen: dict[str, Any] = {
            "workload.sequence_parallel": False
        }  # engines reduce activations, and keep all of them
        if layer.kv_cache_dtype != "auto":
            chosen["workload.cache_dtype"] = layer.kv_cache_dtype
        base = with_collectives(steps.base.changed(chosen), self.engine)
        share = known(self.batch["serving.memory_fraction"])
        usual = self.engine.memory_fraction
        fraction: Any = np.where(np.isnan(share), usual, share)
        engine = replace(self.engine, memory_fraction=fraction)
        return StepPrice(Batch(base, steps.columns), engine, layer.draft_tokens)

    def take(self, rows: npt.NDArray[np.intp]) -> Pool:
        """Return the designs at *rows*."""
        return replace(self, batch=self.batch.take(rows, {}))


@dataclass(frozen=True)
class Deployment:
    """Pools that serve a load together: of one design, or of many that differ in numbers alone."""

    batch: Batch
    """The designs as they are given: their load and limits."""
    pool: Pool
    """Instances that do all, or those that decode."""
    prefill: Pool | None
    """Instances that only prefill."""

    @property
    def load(self) -> Load:
        """The load, of the one design or the base of many."""
        return _layer(self.batch.base).load

    @property
    def npus(self) -> Any:
        """Accelerators of all pools."""
        return self.pool.npus + (self.prefill.npus if self.prefill else 0)

    def mean(self, name: str) -> Any:
        """Return the mean of a figure of requests, such as ``isl``."""
        return self.load.mean(name) if self.load.classes else self.batch[f"serving.load.{name}"]

    def take(self, rows: npt.NDArray[np.intp]) -> Deployment:
        """Return the deployments at *rows*."""
        return Deployment(self.batch.take(rows, {}), self.pool.take(rows), self.prefill and self.prefill.take(rows))


def deployment_of(design: DesignPoint) -> Deployment:
    """Return the deployment that a design with a serving layer describes."""
    require(design.serving is not None, "serving", None, "the design has no serving layer: it says no load")
    ((_, found),) = deployments_of(batch_of(design))
    return found


def deployments_of(batch: Batch) -> Iterator[tuple[npt.NDArray[np.intp], Deployment]]:
    """Yield the deployments of designs with a serving layer, in groups that share one form, each with its rows."""
    others = [path for path in batch.columns if path.startswith("serving.") and not _is_number(batch.columns[path])]
    for rows, part in batch.groups(list(dict.fromkeys((*GROUPED, *others)))):
        engine = load_engine(_layer(part.base).engine)
        for places, alike in _by_form(part):
            if not _layer(alike.base).disaggregated:
                yield rows[places], Deployment(alike, Pool(alike, engine), None)
                continue
            for cut, deployment in _in_two_pools(alike, engine):
                yield rows[places[cut]], deployment


def ranks_of(batch: Batch) -> Any:
    """Return the ranks of attention data parallelism of an instance."""
    tp, ep = batch["workload.tp"], batch["workload.ep"]
    usual = np.gcd(tp, np.maximum(tp * batch["workload.cp"] * batch["workload.dp"] // ep, 1))
    etp = batch["workload.etp"]
    if has_gaps(etp):
        etp = np.array([each or other for each, other in zip(etp, np.broadcast_to(usual, etp.shape), strict=True)])
    return np.maximum((usual if etp is None else etp) * ep // tp, 1)


def mesh_npus(batch: Batch) -> Any:
    """Return the accelerators that the mapping of a batch takes."""
    return batch["workload.dp"] * batch["workload.tp"] * batch["workload.cp"] * batch["workload.pp"]


def prefill_npus(batch: Batch) -> Any:
    """Return the accelerators of the prefill pools of *batch*, wherever they are; 0 where there are none."""
    if _layer(batch.base).prefill is None:
        return 0
    return batch["serving.prefill.replicas"] * _mesh_of_instance(batch)


def one_instance(batch: Batch) -> Batch:
    """Return designs of one instance each: its ranks of attention, and its part of the network.

    What an instance takes does not depend on how many there are.
    """
    ranks = np.broadcast_to(np.asarray(ranks_of(batch)), (batch.size,))
    alone = Batch(batch.base, {**batch.columns, "workload.dp": ranks, "workload.ep": _of_instance(batch, ranks)})
    cut = _cut(alone, alone.size)
    sizes: dict[str, Any] = {f"network.dims.{place}.npus": cut[:, place] for place in range(cut.shape[1])}
    sizes |= {f"network.dims.{place}.bandwidth": rate for place, rate in _narrowed(alone, cut)}
    kept = {path: column for path, column in alone.columns.items() if path != "workload.sequence_parallel"}
    return Batch(batch.base, kept | sizes)


def _of_instance(batch: Batch, ranks: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return over how many devices of an instance experts are spread: at most all of them."""
    most = ranks * batch["workload.tp"] * batch["workload.cp"]
    return np.broadcast_to(np.minimum(batch["workload.ep"], most), (batch.size,))


def without_load(batch: Batch) -> Batch:
    """Return designs without their serving layer: single steps."""
    columns = {path: column for path, column in batch.columns.items() if not path.startswith("serving.")}
    base = batch.base if batch.base.serving is None else batch.base.known.get("step")
    if base is None:
        base = batch.base.known.setdefault("step", replace(batch.base, serving=None))
    return Batch(base, columns)


def _layer(design: DesignPoint) -> Serving:
    assert design.serving is not None  # noqa: S101  only such designs come here
    return design.serving


def _is_number(column: Any) -> bool:
    return isinstance(column, np.ndarray) and column.dtype.kind in "iufb"


def _mesh_of_instance(batch: Batch) -> Any:
    return batch["serving.prefill.tp"] * batch["serving.prefill.pp"] * batch["serving.prefill.dp"]


# ------------------------------------------------------------------------------------------------- pools


def _by_form(batch: Batch) -> Iterator[tuple[npt.NDArray[np.intp], Batch]]:
    """Yield deployments that are all in one pool, or all in two."""
    pool = _layer(batch.base).prefill
    replicas = 0 if pool is None else batch["serving.prefill.replicas"]
    if np.ndim(replicas) == 0:
        yield np.arange(batch.size), batch
        return
    for two in (False, True):
        rows = np.flatnonzero((np.asarray(replicas) > 0) == two)
        if len(rows):
            first = int(np.asarray(replicas)[rows[0]])
            part = batch.take(rows, {} if two else {"serving.prefill.replicas": 0})
            yield rows, replace(part, base=part.base.changed({"serving.prefill.replicas": first})) if two else part


def _in_two_pools(batch: Batch, engine: Engine) -> Iterator[tuple[npt.NDArray[np.intp], Deployment]]:
    """Yield deployments with a prefill pool, in groups whose pools have the same dimensions of networks."""
    pool = _layer(batch.base).prefill
    assert pool is not None  # noqa: S101  as they are disaggregated
    filling = _prefilling(batch if pool.system is None else _moved(batch, pool.system))
    cuts = [_cut(each, batch.size) for each in (batch, filling)]
    kept = [tuple(row) for row in (np.concatenate(cuts, axis=1) > 1).tolist()]
    for form in dict.fromkeys(kept):
        rows = np.array([place for place, each in enumerate(kept) if each == form], dtype=np.intp)
        parts = [_resized(each, cut, rows) for each, cut in zip((batch, filling), cuts, strict=True)]
        whole = batch if len(rows) == len(kept) else batch.take(rows, {})
        yield rows, Deployment(whole, Pool(parts[0], engine), Pool(parts[1], engine))


def _prefilling(batch: Batch) -> Batch:
    """Return designs of which the mapping is that of their prefill pool."""
    mesh = {f"workload.{name}": batch[f"serving.prefill.{name}"] for name in MESH}
    mesh["workload.dp"] = mesh["workload.dp"] * batch["serving.prefill.replicas"]
    mesh["workload.cp"] = 1
    if batch.columns:  # as many pools as there are designs
        mesh["workload.dp"] = np.broadcast_to(mesh["workload.dp"], (batch.size,))
    own = batch["serving.prefill.max_num_batched_tokens"]
    if own is not None:
        mesh["serving.max_num_batched_tokens"] = own
    arrays = {path: value for path, value in mesh.items() if isinstance(value, np.ndarray)}
    base = batch.base.changed({path: value for path, value in mesh.items() if path not in arrays})
    return Batch(base, {path: column for path, column in batch.columns.items() if path not in mesh} | arrays)


def _moved(batch: Batch, system: str) -> Batch:
    """Return designs on the machines of another system."""
    compute, memory, network, collective, node = machine_of(system)
    base = replace(batch.base, compute=compute, memory=memory, network=network, collective=collective, node=node)
    return Batch(base, {path: column for path, column in batch.columns.items() if not path.startswith(OF_MACHINE)})


def _cut(batch: Batch, size: int) -> npt.NDArray[np.int64]:
    """Return the size of each network dimension for the accelerators of a mapping: a row for each of *size* designs."""
    dims = range(len(batch.base.network.dims))
    one = ranks_of(batch) * batch["workload.tp"] * batch["workload.pp"]
    asked = np.minimum(np.asarray(mesh_npus(batch), dtype=float), MOST_NPUS)
    alike = [_alike(batch, place) for place in dims]
    sizes = [asked, one, *(batch[f"network.dims.{place}.npus"] for place in dims), *alike]
    rows = np.stack(np.broadcast_arrays(*(np.atleast_1d(each) for each in sizes)), axis=1).astype(np.int64)
    rows = np.broadcast_to(rows, (size, rows.shape[1]))
    known, which = np.unique(rows, axis=0, return_inverse=True)
    ends = 2 + len(dims)
    cut = [
        sizes_within(tuple(each[2:ends]), each[0], each[1], tuple(map(bool, each[ends:]))) for each in known.tolist()
    ]
    return np.array(cut, dtype=np.int64).reshape(len(known), len(dims))[which.reshape(-1)]


def _alike(batch: Batch, place: int) -> Any:
    """Return whether a dimension and the one before are of one torus: the same links, and no switches."""
    if place == 0:
        return False
    dims, pair = batch.base.network.dims, [f"network.dims.{each}" for each in (place - 1, place)]
    varies = any(path.startswith(tuple(f"{each}.transport" for each in pair)) for path in batch.columns)
    same: Any = dims[place - 1].transport == dims[place].transport and not varies
    for key in OF_LINK:
        same = same & np.equal(*(_values(batch[f"{each}.{key}"]) for each in pair))
    same = same & np.equal(*(_values(batch[f"collective.algorithms.{each}"]) for each in (place - 1, place)))
    names, which = np.unique(_values(batch[f"{pair[0]}.topology"]), return_inverse=True)
    return same & np.array([not topologies[str(each)].switched for each in names])[which]


def _values(column: Any) -> npt.NDArray[Any]:
    """Return names or numbers as an array."""
    return np.asarray(column.tolist() if isinstance(column, Names) else column)


def _narrowed(batch: Batch, cut: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.float64]]]:
    """Yield dimensions of which a part has less bandwidth than the whole, with the bandwidth of each design's part."""
    for place in range(cut.shape[1]):
        path = f"network.dims.{place}"
        share = kept_share(batch[f"{path}.topology"], batch[f"{path}.npus"], cut[:, place])
        if np.any(share < 1):
            yield place, np.asarray(batch[f"{path}.bandwidth"], dtype=float) * share


def _resized(batch: Batch, cut: npt.NDArray[np.int64], rows: npt.NDArray[np.intp]) -> Batch:
    """Return the designs at *rows* with networks of the sizes *cut*; dimensions of one accelerator are left out."""
    narrowed = {place: rate[rows] for place, rate in _narrowed(batch, cut)}
    cut = cut[rows]
    kept = np.flatnonzero(cut[0] > 1).tolist()
    base = batch.base
    dims = [
        replace(dim, bandwidth_bytes_per_s=float(narrowed[place][0])) if place in narrowed else dim
        for place, dim in enumerate(base.network.dims)
    ]
    changes = {
        "network.dims": tuple(replace(dims[place], npus=int(cut[0, place])) for place in kept),
        "collective.algorithms": tuple(base.collective.algorithms[place] for place in kept),
    }
    columns: dict[str, Any] = {}
    for path, column in batch.columns.items():
        place = _dimension(path)
        if place is None:
            columns[path] = column[rows]
        elif place in kept and not path.endswith(".npus"):
            columns[path.replace(f".{place}", f".{kept.index(place)}", 1)] = column[rows]
    if batch.columns or len(rows) > 1:
        columns |= {f"network.dims.{new}.npus": cut[:, old] for new, old in enumerate(kept)}
        columns |= {f"network.dims.{kept.index(old)}.bandwidth": rate for old, rate in narrowed.items() if old in kept}
    return Batch(base.changed(changes), columns)


def _dimension(path: str) -> int | None:
    """Return the network dimension that a path is about.

    >>> _dimension("network.dims.1.bandwidth"), _dimension("collective.algorithms.0"), _dimension("workload.tp")
    (1, 0, None)
    """
    for outer in ("network.dims.", "collective.algorithms."):
        if path.startswith(outer):
            return int(path.removeprefix(outer).partition(".")[0])
    return None
