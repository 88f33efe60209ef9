"""A deployment: engine instances in one pool, or in two of which one only prefills. One design, or many at once.

A design's mapping is of all instances that decode. One instance has tp × pp accelerators, times the ranks of attention
data parallelism that share its experts:

    ranks     = max(1, etp ep / tp)        experts spread over more devices than tp need several ranks of attention
    instances = dp / ranks

The accelerators of the design's network are those of both pools. A pool's own network is cut out of it from the inside
outwards, so that whole instances stay together (`dimension_sizes_within`). A pool on a system of its own is beside it.

What a deployment must meet, besides the rules of a mapping, are `DEPLOYMENT_RULES`: each a test over many designs, and
a sentence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import prod, sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.base.errors import require
from cosmic.base.numeric import Condition, divisors, even_factors, factorizations
from cosmic.design import catalog_entries, schema
from cosmic.design.catalog_parts import fill_switches, node_figures
from cosmic.design.collective_layer import Collective
from cosmic.design.compute_layer import Compute
from cosmic.design.design_batch import Batch, Label, Names, batch_of, has_gaps, none_to_nan
from cosmic.design.design_point import DesignPoint
from cosmic.design.facility_layer import Node
from cosmic.design.memory_layer import Memory
from cosmic.design.network_layer import MOST_NPUS, Network, topologies
from cosmic.design.serving_engine import Engine, load_engine
from cosmic.design.serving_layer import Load, Serving
from cosmic.design.systems import REST_OF_NPUS, entry_dimensions, read_system_entry
from cosmic.serving.step_price import StepPrice, with_collectives
from cosmic.workload.mapping_rules import RULES, Rule

# ---- The machines of a pool: its share of the design's network, or a system of the catalog

PLACEHOLDER_NPUS = 2
"""Stands for the size of a dimension that grows with the accelerators, until a pool cuts its own."""


def dimension_sizes_within(
    dims: tuple[int, ...], npus: int, instance: int, same_torus: tuple[bool, ...] = ()
) -> tuple[int, ...]:
    """Return the size of each dimension, innermost first, for *npus* accelerators of a network with *dims*.

    Dimensions are filled from the inside, the last takes the rest. Instances of so many accelerators stay whole: 12
    accelerators of nodes of 8 are 3 nodes of 4 if an instance has 4 or 2.

    Neighbouring dimensions that are *same_torus* (a flag for each, which says so of it and the one before) are one torus,
    filled as a slice of its own, as Cloud TPUs are allotted: as near to a cube as the number allows, whatever the size
    of the machine that it is cut out of.

    >>> [dimension_sizes_within((8, 8), npus, one) for npus, one in ((24, 8), (12, 4), (4, 4), (32, 16))]
    [(8, 3), (4, 3), (4, 1), (8, 4)]
    >>> [dimension_sizes_within(torus, 8, 8, (False, True)) for torus in ((2, 4), (4, 4), (16, 16), (3, 8))]
    [(2, 4), (2, 4), (2, 4), (2, 4)]
    """
    if npus == instance == prod(dims):
        return dims
    return tuple(_fill_tori(_group_tori(dims, same_torus), npus, instance))


def _group_tori(dims: tuple[int, ...], same_torus: tuple[bool, ...]) -> list[tuple[int, ...]]:
    """Return dimensions in groups of those that are alike.

    >>> _group_tori((4, 4, 4, 8), (False, True, True, False))
    [(4, 4, 4), (8,)]
    """
    tori: list[tuple[int, ...]] = []
    for index, size in enumerate(dims):
        if index and same_torus and same_torus[index]:
            tori[-1] = (*tori[-1], size)
        else:
            tori.append((size,))
    return tori


def _fill_tori(tori: list[tuple[int, ...]], npus: int, instance: int) -> Iterator[int]:
    for torus in tori[:-1]:
        fitting = (part for part in reversed(divisors(npus)) if part % instance == 0 or instance % part == 0)
        chosen = next(cut for part in fitting if (cut := _slice_of(torus, part)))  # of one accelerator, any torus
        yield from chosen
        npus_of_cut = prod(chosen)
        npus, instance = npus // npus_of_cut, max(1, instance // npus_of_cut)
    for torus in tori[-1:]:
        yield from _slice_of(torus, npus) or even_factors(npus, len(torus))


@cache
def _slice_of(torus: tuple[int, ...], npus: int) -> tuple[int, ...]:
    """Return the sizes of *npus* accelerators of a torus, as equal as it has room for; none where it has not.

    >>> _slice_of((4, 4), 4), _slice_of((2, 16), 16), _slice_of((4, 4), 6), _slice_of((4, 4), 10)
    ((2, 2), (2, 8), (2, 3), ())
    """
    room = sorted(torus)
    even = even_factors(npus, len(torus))
    if _fits_room(even, room):
        return even
    fitting = (
        factorization
        for factorization in factorizations(npus, len(torus))
        if list(factorization) == sorted(factorization) and _fits_room(factorization, room)
    )
    return min(fitting, key=lambda slice_sizes: slice_sizes[::-1], default=())


def _fits_room(sizes: tuple[int, ...], room: list[int]) -> bool:
    return all(size <= limit for size, limit in zip(sizes, room, strict=True))


def remaining_bandwidth_share(topology: Label, npus: Any, cut: Any) -> Any:
    """Return the share of its bandwidth that an accelerator keeps where *cut* of the *npus* of a dimension are cut out.

    Where each has a link to every other, links to those outside do not help.

    >>> float(remaining_bandwidth_share("fully_connected", 8, 4)), float(remaining_bandwidth_share("switch", 8, 4))
    (0.42857142857142855, 1.0)
    """
    npus, cut = np.asarray(npus, dtype=float), np.asarray(cut, dtype=float)
    share = np.where((cut > 1) & (cut < npus), (cut - 1) / np.maximum(npus - 1, 1), 1.0)
    return np.where(topology == "fully_connected", share, 1.0)


@cache
def machine_of_system(system: str) -> tuple[Compute, Memory, Network, Collective, Node]:
    """Return the layers of the machines of a system of the catalog; how many there are is for a pool to say."""
    entry = read_system_entry(system, None)
    accelerator = catalog_entries.read_entry("accelerators", entry["accelerator"])
    where = f"systems/{system}.yaml"
    compute = {**accelerator["compute"], **entry.get("compute", {}), "accelerator": entry["accelerator"]}
    memory = {**accelerator["memory"], **entry.get("memory", {})}
    dims = [
        {**dim, "npus": PLACEHOLDER_NPUS} if dim["npus"] == REST_OF_NPUS else dim
        for dim in entry_dimensions(entry, where)
    ]
    network: Network = schema.read_value(Network, fill_switches({"dims": dims}), f"{where} network")
    collective = entry.get("collective", {})
    if len(collective.get("algorithms", [])) != len(dims):
        collective = {**collective, "algorithms": [topologies[dim.topology].algorithm for dim in network.dims]}
    return (
        schema.read_value(Compute, compute, f"{where} compute"),
        schema.read_value(Memory, memory, f"{where} memory"),
        network,
        schema.read_value(Collective, collective, f"{where} collective"),
        schema.read_value(Node, node_figures(entry["node"]) if "node" in entry else {}, f"{where} node"),
    )


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
        return _serving_layer(self.design)

    @cached_property
    def ranks(self) -> Any:
        """Ranks of attention data parallelism of one instance."""
        return attention_ranks(self.batch)

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
        steps, layer = designs_of_one_instance(without_load(self.batch)), self.serving
        chosen: dict[str, Any] = {
            "workload.sequence_parallel": False
        }  # engines reduce activations, and keep all of them
        if layer.kv_cache_dtype != "auto":
            chosen["workload.cache_dtype"] = layer.kv_cache_dtype
        base = with_collectives(steps.base.changed(chosen), self.engine)
        share = none_to_nan(self.batch["serving.memory_fraction"])
        usual = self.engine.memory_fraction
        fraction: Any = np.where(np.isnan(share), usual, share)
        engine = replace(self.engine, memory_fraction=fraction)
        return StepPrice(Batch(base, steps.columns), engine, layer.draft_tokens)

    def select_rows(self, rows: npt.NDArray[np.intp]) -> Pool:
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
        return _serving_layer(self.batch.base).load

    @property
    def npus(self) -> Any:
        """Accelerators of all pools."""
        return self.pool.npus + (self.prefill.npus if self.prefill else 0)

    def mean(self, name: str) -> Any:
        """Return the mean of a figure of requests, such as ``isl``."""
        return self.load.mean(name) if self.load.classes else self.batch[f"serving.load.{name}"]

    def spread(self, name: str) -> Any:
        """Return the variation of a length over all requests: within classes, and between them."""
        classes = self.load.all_classes
        if len(classes) == 1:
            return np.asarray(self.mean(f"{name}_cv"), dtype=float)
        mean, share_sum = self.load.mean(name), sum(class_.share for class_ in classes)
        squares = sum(
            class_.share * getattr(class_, name) ** 2 * (1 + getattr(class_, f"{name}_cv") ** 2) for class_ in classes
        )
        return sqrt(max(squares / share_sum / mean**2 - 1, 0.0))

    def number(self, path: str) -> Any:
        """Return a field of the serving layer of each design; NaN where it is not stated."""
        return np.asarray(none_to_nan(self.batch[f"serving.{path}"]), dtype=float) * np.ones(self.batch.size)

    def limit(self, name: str) -> Any:
        """Return a limit of an instance: as stated, else as its engine has it."""
        stated = self.number(name)
        return np.where(np.isnan(stated), getattr(self.pool.engine, name), stated)

    @property
    def tokens_per_step(self) -> Any:
        """Tokens that a request gains a step: 1 + a + a² + …, if a share a of drafted tokens is accepted."""
        accepted = self.number("acceptance")
        drafted = range(1, self.pool.serving.draft_tokens + 1)
        return sum((accepted**index for index in drafted), np.ones_like(accepted))

    def select_rows(self, rows: npt.NDArray[np.intp]) -> Deployment:
        """Return the deployments at *rows*."""
        return Deployment(
            self.batch.take(rows, {}), self.pool.select_rows(rows), self.prefill and self.prefill.select_rows(rows)
        )


def deployment_of(design: DesignPoint) -> Deployment:
    """Return the deployment that a design with a serving layer describes."""
    require(design.serving is not None, "serving", None, "the design has no serving layer: it says no load")
    ((_, deployment),) = deployments_of(batch_of(design))
    return deployment


def deployments_of(batch: Batch) -> Iterator[tuple[npt.NDArray[np.intp], Deployment]]:
    """Yield the deployments of designs with a serving layer, in groups that share one form, each with its rows."""
    labels = [path for path in batch.columns if path.startswith("serving.") and not _is_number(batch.columns[path])]
    for rows, part in batch.groups(list(dict.fromkeys((*GROUPED, *labels)))):
        engine = load_engine(_serving_layer(part.base).engine)
        for indices, same_form in _by_form(part):
            if not _serving_layer(same_form.base).disaggregated:
                yield rows[indices], Deployment(same_form, Pool(same_form, engine), None)
                continue
            for cut, deployment in _in_two_pools(same_form, engine):
                yield rows[indices[cut]], deployment


def attention_ranks(batch: Batch) -> Any:
    """Return the ranks of attention data parallelism of an instance."""
    tp, ep = batch["workload.tp"], batch["workload.ep"]
    usual = np.gcd(tp, np.maximum(tp * batch["workload.cp"] * batch["workload.dp"] // ep, 1))
    etp = batch["workload.etp"]
    if has_gaps(etp):
        etp = np.array(
            [
                etp_of_row or usual_value
                for etp_of_row, usual_value in zip(etp, np.broadcast_to(usual, etp.shape), strict=True)
            ]
        )
    return np.maximum((usual if etp is None else etp) * ep // tp, 1)


def mesh_npus(batch: Batch) -> Any:
    """Return the accelerators that the mapping of a batch takes."""
    return batch["workload.dp"] * batch["workload.tp"] * batch["workload.cp"] * batch["workload.pp"]


def prefill_npus(batch: Batch) -> Any:
    """Return the accelerators of the prefill pools of *batch*, wherever they are; 0 where there are none."""
    if _serving_layer(batch.base).prefill is None:
        return 0
    return batch["serving.prefill.replicas"] * (
        batch["serving.prefill.tp"] * batch["serving.prefill.pp"] * batch["serving.prefill.dp"]
    )


def designs_of_one_instance(batch: Batch) -> Batch:
    """Return designs of one instance each: its ranks of attention, and its part of the network.

    What an instance takes does not depend on how many there are.
    """
    ranks = np.broadcast_to(np.asarray(attention_ranks(batch)), (batch.size,))
    instance = Batch(batch.base, {**batch.columns, "workload.dp": ranks, "workload.ep": _expert_devices(batch, ranks)})
    cut = _cut_sizes(instance, instance.size)
    sizes: dict[str, Any] = {f"network.dims.{index}.npus": cut[:, index] for index in range(cut.shape[1])}
    sizes |= {f"network.dims.{dimension}.bandwidth": rate for dimension, rate in _narrow_dimensions(instance, cut)}
    columns = {path: column for path, column in instance.columns.items() if path != "workload.sequence_parallel"}
    return Batch(batch.base, columns | sizes)


def _expert_devices(batch: Batch, ranks: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return over how many devices of an instance experts are spread: at most all of them."""
    devices = ranks * batch["workload.tp"] * batch["workload.cp"]
    return np.broadcast_to(np.minimum(batch["workload.ep"], devices), (batch.size,))


def without_load(batch: Batch) -> Batch:
    """Return designs without their serving layer: single steps."""
    columns = {path: column for path, column in batch.columns.items() if not path.startswith("serving.")}
    base = batch.base if batch.base.serving is None else batch.base.known.get("step")
    if base is None:
        base = batch.base.known.setdefault("step", replace(batch.base, serving=None))
    return Batch(base, columns)


def _serving_layer(design: DesignPoint) -> Serving:
    assert design.serving is not None  # noqa: S101  only such designs come here
    return design.serving


def _is_number(column: Any) -> bool:
    return isinstance(column, np.ndarray) and column.dtype.kind in "iufb"


# ---- pools


def _by_form(batch: Batch) -> Iterator[tuple[npt.NDArray[np.intp], Batch]]:
    """Yield deployments that are all in one pool, or all in two."""
    pool = _serving_layer(batch.base).prefill
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
    pool = _serving_layer(batch.base).prefill
    assert pool is not None  # noqa: S101  as they are disaggregated
    filling = _prefilling(batch if pool.system is None else _on_system(batch, pool.system))
    cuts = [_cut_sizes(pool_batch, batch.size) for pool_batch in (batch, filling)]
    crossed = [tuple(row) for row in (np.concatenate(cuts, axis=1) > 1).tolist()]
    for form in dict.fromkeys(crossed):
        rows = np.array([index for index, crossed_dims in enumerate(crossed) if crossed_dims == form], dtype=np.intp)
        parts = [
            _resize_networks(pool_batch, cut, rows) for pool_batch, cut in zip((batch, filling), cuts, strict=True)
        ]
        full = batch if len(rows) == len(crossed) else batch.take(rows, {})
        yield rows, Deployment(full, Pool(parts[0], engine), Pool(parts[1], engine))


def _prefilling(batch: Batch) -> Batch:
    """Return designs of which the mapping is that of their prefill pool."""
    mesh = {f"workload.{name}": batch[f"serving.prefill.{name}"] for name in MESH}
    mesh["workload.dp"] = mesh["workload.dp"] * batch["serving.prefill.replicas"]
    mesh["workload.cp"] = 1
    if batch.columns:  # as many pools as there are designs
        mesh["workload.dp"] = np.broadcast_to(mesh["workload.dp"], (batch.size,))
    token_budget = batch["serving.prefill.max_num_batched_tokens"]
    if token_budget is not None:
        mesh["serving.max_num_batched_tokens"] = token_budget
    arrays = {path: value for path, value in mesh.items() if isinstance(value, np.ndarray)}
    base = batch.base.changed({path: value for path, value in mesh.items() if path not in arrays})
    return Batch(base, {path: column for path, column in batch.columns.items() if path not in mesh} | arrays)


def _on_system(batch: Batch, system: str) -> Batch:
    """Return designs on the machines of another system."""
    compute, memory, network, collective, node = machine_of_system(system)
    base = replace(batch.base, compute=compute, memory=memory, network=network, collective=collective, node=node)
    return Batch(base, {path: column for path, column in batch.columns.items() if not path.startswith(OF_MACHINE)})


def _cut_sizes(batch: Batch, size: int) -> npt.NDArray[np.int64]:
    """Return the size of each network dimension for the accelerators of a mapping: a row for each of *size* designs."""
    dims = range(len(batch.base.network.dims))
    instance_npus = attention_ranks(batch) * batch["workload.tp"] * batch["workload.pp"]
    npus = np.minimum(np.asarray(mesh_npus(batch), dtype=float), MOST_NPUS)
    same_torus = [_is_same_torus(batch, dimension) for dimension in dims]
    sizes = [npus, instance_npus, *(batch[f"network.dims.{dimension}.npus"] for dimension in dims), *same_torus]
    rows = np.stack(np.broadcast_arrays(*(np.atleast_1d(column) for column in sizes)), axis=1).astype(np.int64)
    rows = np.broadcast_to(rows, (size, rows.shape[1]))
    distinct, which = np.unique(rows, axis=0, return_inverse=True)
    ends = 2 + len(dims)
    cut = [
        dimension_sizes_within(tuple(column[2:ends]), column[0], column[1], tuple(map(bool, column[ends:])))
        for column in distinct.tolist()
    ]
    return np.array(cut, dtype=np.int64).reshape(len(distinct), len(dims))[which.reshape(-1)]


def _is_same_torus(batch: Batch, dimension: int) -> Any:
    """Return whether a dimension and the one before are of one torus: the same links, and no switches."""
    if dimension == 0:
        return False
    dims, pair = batch.base.network.dims, [f"network.dims.{index}" for index in (dimension - 1, dimension)]
    varies = any(path.startswith(tuple(f"{path_of_dim}.transport" for path_of_dim in pair)) for path in batch.columns)
    same: Any = dims[dimension - 1].transport == dims[dimension].transport and not varies
    for key in OF_LINK:
        same = same & np.equal(*(_column_values(batch[f"{path_of_dim}.{key}"]) for path_of_dim in pair))
    same = same & np.equal(
        *(_column_values(batch[f"collective.algorithms.{index}"]) for index in (dimension - 1, dimension))
    )
    names, which = np.unique(_column_values(batch[f"{pair[0]}.topology"]), return_inverse=True)
    return same & np.array([not topologies[str(name)].switched for name in names])[which]


def _column_values(column: Any) -> npt.NDArray[Any]:
    """Return names or numbers as an array."""
    return np.asarray(column.tolist() if isinstance(column, Names) else column)


def _narrow_dimensions(batch: Batch, cut: npt.NDArray[np.int64]) -> Iterator[tuple[int, npt.NDArray[np.float64]]]:
    """Yield dimensions of which a part has less bandwidth than the whole, with the bandwidth of each design's part."""
    for index in range(cut.shape[1]):
        path = f"network.dims.{index}"
        share = remaining_bandwidth_share(batch[f"{path}.topology"], batch[f"{path}.npus"], cut[:, index])
        if np.any(share < 1):
            yield index, np.asarray(batch[f"{path}.bandwidth"], dtype=float) * share


def _resize_networks(batch: Batch, cut: npt.NDArray[np.int64], rows: npt.NDArray[np.intp]) -> Batch:
    """Return the designs at *rows* with networks of the sizes *cut*; dimensions of one accelerator are left out."""
    narrowed = {dimension: rate[rows] for dimension, rate in _narrow_dimensions(batch, cut)}
    cut = cut[rows]
    crossed = np.flatnonzero(cut[0] > 1).tolist()
    base = batch.base
    dims = [
        replace(dim, bandwidth_bytes_per_s=float(narrowed[index][0])) if index in narrowed else dim
        for index, dim in enumerate(base.network.dims)
    ]
    changes = {
        "network.dims": tuple(replace(dims[dimension], npus=int(cut[0, dimension])) for dimension in crossed),
        "collective.algorithms": tuple(base.collective.algorithms[dimension] for dimension in crossed),
    }
    columns: dict[str, Any] = {}
    for path, column in batch.columns.items():
        dimension_of_path = _dimension_of_path(path)
        if dimension_of_path is None:
            columns[path] = column[rows]
        elif dimension_of_path in crossed and not path.endswith(".npus"):
            columns[path.replace(f".{dimension_of_path}", f".{crossed.index(dimension_of_path)}", 1)] = column[rows]
    if batch.columns or len(rows) > 1:
        columns |= {f"network.dims.{new}.npus": cut[:, old] for new, old in enumerate(crossed)}
        columns |= {
            f"network.dims.{crossed.index(old)}.bandwidth": rate for old, rate in narrowed.items() if old in crossed
        }
    return Batch(base.changed(changes), columns)


def _dimension_of_path(path: str) -> int | None:
    """Return the network dimension that a path is about.

    >>> _dimension_of_path("network.dims.1.bandwidth"), _dimension_of_path("collective.algorithms.0"), _dimension_of_path("workload.tp")
    (1, 0, None)
    """
    for outer in ("network.dims.", "collective.algorithms."):
        if path.startswith(outer):
            return int(path.removeprefix(outer).partition(".")[0])
    return None


# ---- What a deployment must meet, besides the rules of a mapping: each a test over many designs, and a sentence


def _prefill_npus_of_network(batch: Batch) -> Any:
    """Return the accelerators of prefill pools that are part of the design's network."""
    layer = batch.base.serving
    elsewhere = layer is not None and layer.prefill is not None and layer.prefill.system is not None
    return 0 if elsewhere else prefill_npus(batch)


def _do_pools_add_up(batch: Batch) -> Condition:
    npus = np.asarray(mesh_npus(batch), dtype=float) + np.asarray(_prefill_npus_of_network(batch), dtype=float)
    one_pool = np.asarray(prefill_npus(batch)) == 0  # the rule `ranks` is about one pool
    adds_up: Condition = (npus == batch.npus) | one_pool
    return adds_up


def _pools_sentence(point: DesignPoint) -> str:
    workload, pool = point.workload, point.serving.prefill if point.serving else None
    prefill_npus_own = 0 if pool is None or pool.system is not None else pool.npus
    return (
        f"{workload.ranks} NPUs decode (dp {workload.dp} × tp {workload.tp} × cp {workload.cp} × pp {workload.pp}) and "
        f"{prefill_npus_own} prefill, {workload.ranks + prefill_npus_own} in all, of {point.network.npus} NPUs: make them equal"
    )


def _instances_divide(batch: Batch) -> Condition:
    divides: Condition = batch["workload.dp"] % attention_ranks(batch) == 0
    return divides


def _instances_sentence(point: DesignPoint) -> str:
    ranks = int(attention_ranks(Batch(point, {})))
    return f"dp {point.workload.dp} does not divide by the {ranks} ranks that share experts: choose a multiple"


def within_context(batch: Batch) -> Condition:
    """Return whether requests, prompt and answer, are as long as the model takes on average; of any class."""
    layer, context = batch.base.serving, getattr(batch.base.model, "context", None)
    if layer is None or context is None:
        return True
    if layer.load.classes:
        return bool(_longest_request(layer.load) <= context)
    tokens: Any = batch["serving.load.isl"] + batch["serving.load.osl"]
    fits: Condition = np.asarray(tokens, dtype=float) <= context
    return fits


def _longest_request(load: Load) -> float:
    return float(max(request_class.isl + request_class.osl for request_class in load.all_classes))


def _context_sentence(point: DesignPoint) -> str:
    longest = _longest_request(point.serving.load) if point.serving else 0
    context = getattr(point.model, "context", None) or 0
    return (
        f"requests have {longest:,.0f} tokens, prompt and answer; the context of {point.model.name or 'the model'} is "
        f"{context:,} tokens: make them shorter, or set model.context if yours takes more"
    )


def check_context(point: DesignPoint) -> None:
    """Refuse a load of requests that are longer than the model takes, whatever it runs on."""
    tokens = _longest_request(point.serving.load) if point.serving else 0
    require(bool(within_context(batch_of(point))), "serving.load", f"{tokens:,.0f} tokens", _context_sentence(point))


DEPLOYMENT_RULES = {
    "context": Rule(within_context, _context_sentence),
    "pools": Rule(_do_pools_add_up, _pools_sentence),
    "instances": Rule(_instances_divide, _instances_sentence),
}
"""Every such rule by its name."""
PREFILL = "prefill pool: "
"""Begins what a prefill pool breaks."""


def deployment_reasons(design: DesignPoint) -> tuple[str, ...]:
    """Return which rules of deployments a design breaks, a sentence each."""
    deployment = deployment_of(design)
    reasons = [rule.sentence(design) for rule in DEPLOYMENT_RULES.values() if not np.all(rule.holds(deployment.batch))]
    if deployment.prefill and not np.all(_instances_divide(deployment.prefill.batch)):
        reasons.append(PREFILL + _instances_sentence(deployment.prefill.design))
    return tuple(reasons)


def broken_rules(deployment: Deployment) -> dict[str, Any]:
    """Return which deployments break a rule, by its name: one answer, or one for each."""
    broken = {name: np.logical_not(rule.holds(deployment.batch)) for name, rule in DEPLOYMENT_RULES.items()}
    if deployment.prefill is None:
        broken["ranks"] = np.logical_not(RULES["ranks"].holds(deployment.batch))
    else:
        broken[f"{PREFILL}instances"] = np.logical_not(_instances_divide(deployment.prefill.batch))
    return broken
