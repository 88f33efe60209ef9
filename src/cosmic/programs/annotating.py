"""Annotations as people write them: ``w_up: [_, tp]`` gives the axes of each dimension of a tensor.

Several axes of one dimension are written major to minor: ``dp+tp``, ``dp tp`` or a list.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from cosmic.catalog.yaml_files import parse_yaml
from cosmic.errors import SpecError, UnknownName, require
from cosmic.programs.program import Program
from cosmic.workload.sharding.annotation import Axes

NONE = ("_", "", None, "null", "-")


def read_annotations(program: Program, tree: Any) -> Program:
    """Return *program* with the annotations that *tree* has beside its own.

    >>> from cosmic.programs.reading import read_program
    >>> tree = {"dims": {"batch": 8, "wide": 4}, "inputs": {"x": ["batch", "wide"]}}
    >>> plain = read_program({**tree, "operators": [{"name": "y", "gelu": "x"}]})
    >>> read_annotations(plain, {"x": ["dp", "_"]}).annotations
    {'x': (('dp',), ())}
    """
    require(isinstance(tree, Mapping), "annotations", tree, "must map tensors to a list of axes")
    found = dict(program.annotations)
    tensors = program.graph.tensors
    for name, axes in tree.items():
        where = f"annotations.{name}"
        if name not in tensors:
            raise UnknownName.among(where, str(name), "tensor", tensors)
        dims = tensors[name].dims
        found[str(name)] = _axes(axes, dims, where)
    return replace(program, annotations=found)


def _axes(tree: Any, dims: tuple[str, ...], where: str) -> tuple[Axes, ...]:
    if isinstance(tree, Mapping):
        for dim in tree:
            if dim not in dims:
                raise UnknownName.among(where, str(dim), "dimension", dims)
        tree = [tree.get(dim) for dim in dims]
    if not isinstance(tree, list | tuple) or len(tree) != len(dims):
        rule = f"must list the axes of each dimension, {', '.join(dims)}; _ for none"
        raise SpecError(where, tree, rule)
    found = tuple(_of_dim(each, where) for each in tree)
    named = [axis for axes in found for axis in axes]
    twice = [axis for axis in named if named.count(axis) > 1]
    require(not twice, where, tree, f"{', '.join(sorted(set(twice)))} may be used once only")
    return found


def _of_dim(tree: Any, where: str) -> Axes:
    if isinstance(tree, list | tuple):
        return tuple(axis for each in tree for axis in _of_dim(each, where))
    if tree in NONE:
        return ()
    require(isinstance(tree, str), where, tree, "must be axes of the mesh")
    return tuple(tree.replace("+", " ").split())


def parse_annotations(texts: Iterable[str]) -> dict[str, Any]:
    """Return the annotations that texts such as ``w1: [_, tp]`` state.

    >>> parse_annotations(["w1: [_, tp]"])
    {'w1': ['_', 'tp']}
    """
    found: dict[str, Any] = {}
    for text in texts:
        tree = parse_yaml(text, "--annotate")
        require(isinstance(tree, Mapping), "--annotate", text, "write TENSOR: [AXES, …], such as 'w1: [_, tp]'")
        found |= tree
    return found
