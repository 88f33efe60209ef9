"""What an operator of a service can change: its instances, engine, number formats, limits, pools, and their number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cosmic.advice.moves import ACCURACY, CHUNKS, NARROWER, REPLACED
from cosmic.catalog import names
from cosmic.design.point import DesignPoint
from cosmic.launching.launch import not_made_for, targets
from cosmic.loading.services import Service
from cosmic.serving.candidates import Candidate, Kind, as_design, serving_of
from cosmic.serving.searching import best_mappings, best_split
from cosmic.serving.shapes import Shape, has_experts, shape_of
from cosmic.serving.slo import Slo

OF_16_BITS = ("fp8", "fp4")
"""Formats narrower than 16 bits that accelerators multiply in."""


@dataclass(frozen=True)
class Try:
    """A change that has not been tried."""

    lever: str
    """Of the changes of one lever, the best is told."""
    what: str
    design: DesignPoint
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Fields to set."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Options of the command to give."""
    npus: int | None = None
    """Accelerators, if others."""
    condition: str = ""


def moves_of(service: Service, design: DesignPoint, limits: Sequence[Slo], *, mapped: bool) -> Iterator[Try]:
    """Yield every change of a service's design; of its instances only where its mapping was stated."""
    serving = serving_of(design)
    if mapped or serving.disaggregated:
        yield from _shapes(design, limits)
    yield from _formats(design)
    for tokens in CHUNKS:
        if tokens != serving.max_num_batched_tokens:
            changed = design.changed({"serving.max_num_batched_tokens": tokens})
            yield Try("chunk", f"steps of {tokens:,} tokens", changed, {"max_num_batched_tokens": tokens})
    for engine in names("engines"):
        if engine != serving.engine and engine in targets and not not_made_for(engine, design):
            changed = design.changed({"serving.engine": engine})
            yield Try("engine", f"{engine}, not {serving.engine}", changed, {}, {"--engine": engine}, None, REPLACED)
    if not serving.disaggregated:
        split = best_split(design, limits)
        if split is not None:
            yield _in_two(design, split)
        yield from _more(service, design)


def _shapes(design: DesignPoint, limits: Sequence[Slo]) -> Iterator[Try]:
    """Yield the best other instances in one pool."""
    npus, now = design.network.npus, shape_of(design.workload)
    serving = serving_of(design)
    one = not serving.disaggregated
    found, _ = best_mappings(replace(design, serving=replace(serving, prefill=None)), limits, {})
    for shape in (shape_of(each.workload) for each in found):
        if shape != now or not one:
            count = npus // shape.npus
            settings = {**mesh_of(shape, experts=has_experts(design)), "dp": shape.ranks * count}
            beside = {} if one else {"prefill.replicas": 0}
            what = f"{count:,} × {shape}" if one else f"aggregated: {count:,} × {shape}"
            yield Try("instances", what, as_design(design, Kind(shape), count), {**settings, **beside})


def _formats(design: DesignPoint) -> Iterator[Try]:
    precision, compute = design.workload.precision, design.compute
    known = {"fp8": compute.fp8_flop_per_s, "fp4": compute.fp4_flop_per_s}
    for narrower in NARROWER.get(precision, OF_16_BITS):
        if known.get(narrower):
            changed = design.changed({"workload.precision": narrower})
            yield Try("precision", f"weights in {narrower}", changed, {}, {"--precision": narrower}, None, ACCURACY)
    if serving_of(design).kv_cache_dtype == "auto":
        changed = design.changed({"serving.kv_cache_dtype": "fp8"})
        yield Try("cache", "KV cache in fp8", changed, {"kv_cache_dtype": "fp8"}, condition=ACCURACY)


def _in_two(design: DesignPoint, split: Candidate) -> Try:
    """Return the change to two pools."""
    shape, other = split.kind.shape, split.kind.prefill
    assert other is not None  # noqa: S101  as it is split
    experts = has_experts(design)
    mesh = {**mesh_of(shape, experts=experts), "dp": shape.ranks * split.instances}
    filling = {"replicas": split.prefill_instances, **mesh_of(other, experts=experts), "dp": other.ranks}
    settings = {**mesh, **{f"prefill.{name}": value for name, value in filling.items()}}
    found = as_design(design, split.kind, split.instances, split.prefill_instances)
    return Try("pools", f"disaggregated: {split}", found, settings)


def _more(service: Service, design: DesignPoint) -> Iterator[Try]:
    """Yield twice the accelerators."""
    shape, npus = shape_of(design.workload), 2 * design.network.npus
    twice = service.sized(npus)
    if twice is not None:
        count = npus // shape.npus
        settings = {**mesh_of(shape, experts=has_experts(design)), "dp": shape.ranks * count}
        laid = as_design(twice, Kind(shape), count)
        yield Try("npus", f"{npus:,} accelerators: {count:,} × {shape}", laid, settings, npus=npus)


def mesh_of(shape: Shape, *, experts: bool) -> dict[str, int]:
    """Return what to set for instances of a shape, besides their number.

    >>> mesh_of(Shape(tp=2, ranks=4, ep=8), experts=True)
    {'tp': 2, 'pp': 1, 'ep': 8, 'etp': 1}
    """
    found = {"tp": shape.tp, "pp": shape.pp}
    return found | ({"ep": shape.ep, "etp": shape.etp} if experts else {})
