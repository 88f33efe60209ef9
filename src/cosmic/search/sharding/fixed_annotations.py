"""What users fix: `w1: [x, _]` says that the axis x splits the first dimension of w1, and none the second."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from math import prod
from typing import Any

from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.design.plain_data import parse_yaml
from cosmic.search.sharding.program_parts import ProgramParts
from cosmic.search.sharding.sharding_costs import Fixed
from cosmic.search.sharding.sharding_result import Mesh
from cosmic.workload.operator_graph import Tensor
from cosmic.workload.sharding.tensor_sharding import Annotation, Sharding

BARE_QUESTION_MARK = re.compile(r"(?<=[\[,\s])\?(?=\s*[,\]])")
"""A dimension of any axes, which YAML takes for the key of a mapping where it is not quoted."""

CLOSED, OPEN = "_", "?"
AnnotationSource = str | Iterable[str] | Mapping[str, Any]
"""Annotations: texts such as ``w1: [x, _]``, or a table of them."""


def read_annotations(source: AnnotationSource, program: ProgramParts, mesh: Mesh) -> Fixed:
    """Return the shardings that *source* fixes, for every tensor that a name or a pattern (``w_*``) matches.

    An entry is an axis, several axes major to minor (``x+y``, ``x y`` or a list), ``_`` for none, or ``?`` for whatever
    is best; ``x?`` may be split further. The gradient of an activation is annotated with it.
    """
    tables: list[Mapping[str, Any]] = []
    for item in [source] if isinstance(source, str | Mapping) else source:
        table = item if isinstance(item, Mapping) else _parse_annotations(item)
        tables.append(table)
    fixed: dict[str, tuple[Sharding, frozenset[str]]] = {}
    for table in tables:
        for name, entries in table.items():
            for key, tensor in _match_tensors(str(name), program):
                fixed[key] = read_entries(tensor, entries, mesh)
                if tensor.role == "activation" and not tensor.name.startswith("d_"):
                    block = key.rpartition("/")[0]
                    fixed.setdefault(f"{block}/d_{tensor.name}", fixed[key])
    return fixed


def _parse_annotations(text: str) -> Mapping[str, Any]:
    table = parse_yaml(BARE_QUESTION_MARK.sub("'?'", text), "--annotate")
    if not isinstance(table, Mapping):
        raise SpecError("annotate", text, "write TENSOR: [AXIS, _], an entry for each dimension")
    return table


def _match_tensors(pattern: str, program: ProgramParts) -> list[tuple[str, Tensor]]:
    """Return the tensors that a pattern names, by the names of their parts and their own; at least one."""
    tensors = {
        f"{part.name}/{tensor.name}": tensor for part in program.parts for tensor in part.forward.tensors.values()
    }
    matches = [
        (key, tensor)
        for key, tensor in tensors.items()
        if fnmatchcase(tensor.name, pattern) or fnmatchcase(key, pattern)
    ]
    if not matches:
        names = list(dict.fromkeys(tensor.name for tensor in tensors.values()))
        raise UnknownName.among("annotate", pattern, "tensor", names)
    return matches


def read_entries(tensor: Tensor, entries: Any, mesh: Mesh) -> tuple[Sharding, frozenset[str]]:
    """Return the sharding that a list of entries describes, and the dimensions that it leaves open."""
    where = f"annotate.{tensor.name}"
    dims = tensor.dims
    rule = f"must have an entry for each of its dimensions: {', '.join(dims)}"
    if isinstance(entries, Mapping):
        unknown = [str(dim) for dim in entries if dim not in dims]
        if unknown:
            raise UnknownName.among(where, unknown[0], "dimension", dims)
        entries = [entries.get(dim, CLOSED) for dim in dims]
    if not isinstance(entries, list | tuple) or len(entries) != len(dims):
        raise SpecError(where, entries, rule)
    split: dict[str, tuple[str, ...]] = {}
    open_: set[str] = set()
    for dim, entry in zip(dims, entries, strict=True):
        axes = entry if isinstance(entry, list | tuple) else (CLOSED if entry is None else entry,)
        words = [word for axis in axes for word in str(axis).replace("+", " ").split()]
        if any(word.endswith(OPEN) for word in words):
            open_.add(dim)
            words = [word.removesuffix(OPEN) for word in words]
        words = [word for word in words if word not in (CLOSED, "")]
        for word in words:
            if not mesh.axes_named(word):
                raise UnknownName.among(where, word, "mesh axis", mesh.sizes)
        split[dim] = tuple(axis for word in words for axis in mesh.axes_named(word) if mesh.sizes[axis] > 1)
    used = [axis for axes in split.values() for axis in axes]
    require(len(used) == len(set(used)), where, str(entries), "names an axis twice")
    return Sharding.of(split), frozenset(open_)


def part_annotations(fixed: Fixed, part: str) -> dict[str, Annotation]:
    """Return the annotations of one part as propagation takes them."""
    of_part = {key.rpartition("/")[2]: value for key, value in fixed.items() if key.rpartition("/")[0] in ("", part)}
    return {name: Annotation(sharding, tuple(sorted(open_))) for name, (sharding, open_) in of_part.items()}


def check_sizes(fixed: Fixed, program: ProgramParts, mesh: Mesh) -> None:
    """Raise a `SpecError` if an annotation leaves devices without a part of a dimension."""
    for key, (sharding, _) in fixed.items():
        for dim, axes in sharding.dims:
            pieces = prod(mesh.sizes[axis] for axis in axes)
            size = int(program.sizes[dim])
            require(
                pieces <= size,
                f"annotate.{key.rpartition('/')[2]}",
                f"{dim}: {'+'.join(axes)}",
                f"splits {size} into {pieces}: devices would be left without a part",
            )
