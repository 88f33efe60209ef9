"""A program: a graph of operators with the sizes of its dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cosmic.design.program import check_width
from cosmic.errors import UnknownName, require
from cosmic.workload.graph import Graph
from cosmic.workload.sharding.annotation import Axes


@dataclass(frozen=True, slots=True)
class Part:
    """Operators of a program that run one after the other, so many times with weights of their own."""

    name: str
    operators: tuple[str, ...]
    """Their names."""
    repeat: int = 1
    carries: tuple[tuple[str, str], ...] = ()
    """What enters it, and what it hands to its next run in that place."""


@dataclass(frozen=True)
class Program:
    """What a user wants to run, as written: its forward operators, whole, on no machine.

    Names of dimensions are shared between tensors as in any `Graph`; sharding, gradients, memory and cost follow from
    it as they do for the models of the catalog.
    """

    name: str
    graph: Graph
    """Forward operators, in topological order."""
    sizes: Mapping[str, int]
    """The size of each dimension."""
    element_bytes: Mapping[str, float] = field(default_factory=dict)
    """Bytes of an element, for tensors that are not in the format of the precision: indices, masks, statistics."""

    parts: tuple[Part, ...] = ()
    """The operators in parts that run one after the other, some of them repeated; without any, all are one part."""
    like: Mapping[str, str] = field(default_factory=dict)
    """Dimensions that are as long as another: keys are as many as queries."""
    annotations: Mapping[str, tuple[Axes, ...]] = field(default_factory=dict)
    """For some tensors, the axes of the mesh that split each dimension."""
    cuts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Axes that are cut into sub-axes, with the sizes of these: tp into tp_0 and tp_1."""

    def __post_init__(self) -> None:
        for tensor in self.graph.tensors.values():
            for dim in tensor.dims:
                size = self.sizes.get(dim)
                require(size is not None and size >= 1, f"sizes.{dim}", size, "must be a whole number of at least 1")
        for name, width in self.element_bytes.items():
            if name not in self.graph.tensors:
                raise UnknownName.among(f"element_bytes.{name}", name, "tensor", self.graph.tensors)
            check_width(name, self.graph.tensors[name].role, width)
