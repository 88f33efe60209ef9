"""Programs: graphs of operators with the sizes of their dimensions, and annotations as people write them.

A program shares names of dimensions between tensors as any `Graph` does.

Annotations as people write them: ``w_up: [_, tp]`` gives the axes of each dimension of a tensor.

Several axes of one dimension are written major to minor: ``dp+tp``, ``dp tp`` or a list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.design.plain_data import parse_yaml
from cosmic.design.program_model import check_width
from cosmic.workload.operator_graph import Graph
from cosmic.workload.sharding.tensor_sharding import Axes


@dataclass(frozen=True, slots=True)
class ProgramSection:
    """Operators of a program that run in sequence, repeated with separate weights."""

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

    parts: tuple[ProgramSection, ...] = ()
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


NONE = ("_", "", None, "null", "-")


def read_annotations(program: Program, tree: Any) -> Program:
    """Return *program* with the annotations that *tree* has beside its own.

    >>> from cosmic.workload.user_programs.program_yaml import read_program
    >>> tree = {"dims": {"batch": 8, "wide": 4}, "inputs": {"x": ["batch", "wide"]}}
    >>> plain = read_program({**tree, "operators": [{"name": "y", "gelu": "x"}]})
    >>> read_annotations(plain, {"x": ["dp", "_"]}).annotations
    {'x': (('dp',), ())}
    """
    require(isinstance(tree, Mapping), "annotations", tree, "must map tensors to a list of axes")
    annotations = dict(program.annotations)
    tensors = program.graph.tensors
    for name, axes in tree.items():
        where = f"annotations.{name}"
        if name not in tensors:
            raise UnknownName.among(where, str(name), "tensor", tensors)
        dims = tensors[name].dims
        annotations[str(name)] = _read_axes(axes, dims, where)
    return replace(program, annotations=annotations)


def _read_axes(tree: Any, dims: tuple[str, ...], where: str) -> tuple[Axes, ...]:
    if isinstance(tree, Mapping):
        for dim in tree:
            if dim not in dims:
                raise UnknownName.among(where, str(dim), "dimension", dims)
        tree = [tree.get(dim) for dim in dims]
    if not isinstance(tree, list | tuple) or len(tree) != len(dims):
        rule = f"must list the axes of each dimension, {', '.join(dims)}; _ for none"
        raise SpecError(where, tree, rule)
    per_dim = tuple(_read_dim_axes(entry, where) for entry in tree)
    named = [axis for axes in per_dim for axis in axes]
    twice = [axis for axis in named if named.count(axis) > 1]
    require(not twice, where, tree, f"{', '.join(sorted(set(twice)))} may be used once only")
    return per_dim


def _read_dim_axes(tree: Any, where: str) -> Axes:
    if isinstance(tree, list | tuple):
        return tuple(axis for entry in tree for axis in _read_dim_axes(entry, where))
    if tree in NONE:
        return ()
    require(isinstance(tree, str), where, tree, "must be axes of the mesh")
    return tuple(tree.replace("+", " ").split())


def parse_annotations(texts: Iterable[str]) -> dict[str, Any]:
    """Return the annotations in texts such as ``w1: [_, tp]``.

    >>> parse_annotations(["w1: [_, tp]"])
    {'w1': ['_', 'tp']}
    """
    annotations: dict[str, Any] = {}
    for text in texts:
        tree = parse_yaml(text, "--annotate")
        require(isinstance(tree, Mapping), "--annotate", text, "write TENSOR: [AXES, …], such as 'w1: [_, tp]'")
        annotations |= tree
    return annotations
