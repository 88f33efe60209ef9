"""What users name: a model of the catalog, or a file with a program."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from cosmic import catalog
from cosmic.autosharding.models import is_model
from cosmic.autosharding.parts import Part, Parts, as_computed
from cosmic.errors import UnknownName, require
from cosmic.files import is_file
from cosmic.programs.program import Part as Section
from cosmic.programs.program import Program
from cosmic.programs.sources import load
from cosmic.workload.attended import causal_share
from cosmic.workload.graph import Graph

TWINS = {"sequence": ("context", "source"), "batch": ("samples",)}
"""Dimensions that are as long as another by their names."""


def read_program(name: str) -> Program | str:
    """Return the program of ``my.yaml``, ``FILE.py:function`` or ``FILE.py:Module``, or the name of a model."""
    if is_model(name):
        return name
    path, _, _ = name.rpartition(":")
    if is_file(name) or path.endswith(".py"):
        return load(name)
    raise UnknownName.among("program", name, "model", catalog.names("models"))


def program_parts(program: Program, *, training: bool) -> Parts:
    """Return the parts of a program: what one hands to another, or to its next run, is one tensor."""
    whole = program.graph
    sections = program.parts or (Section(program.name, tuple(each.name for each in whole.operators)),)
    by_name = {operator.name: operator for operator in whole.operators}
    graphs = [Graph(tuple(by_name[name] for name in section.operators)) for section in sections]
    in_parts = Counter(name for graph in graphs for name in graph.tensors)
    same = {after: before for section in sections for before, after in section.carries}
    shared = {name for name, times in in_parts.items() if times > 1} | {*same, *same.values()}
    found = []
    for section, graph in zip(sections, graphs, strict=True):
        stream = {name: same.get(name, name) for name in graph.tensors if name in shared}
        leaving = tuple(name for name in graph.tensors if name in shared)
        handed = tuple(name for pair in section.carries for name in pair)
        found.append(Part(section.name, as_computed(graph), training, section.repeat, stream, leaving, handed=handed))
    visible = float(causal_share(program.sizes.get("sequence", 1)))
    return Parts(program.name, tuple(found), {"visible": visible, **program.sizes}, program.element_bytes)


def resized(program: Program, **given: int | None) -> Program:
    """Return *program* with dimensions of other sizes, those that are *given*, and what is as long as they are.

    >>> from cosmic.programs.reading import read_program
    >>> tree = {"dims": {"batch": 8, "wide": 4}, "inputs": {"x": ["batch", "wide"]}}
    >>> small = read_program({**tree, "operators": [{"name": "y", "gelu": "x"}]})
    >>> resized(small, batch=64, sequence=None).sizes
    {'batch': 64, 'wide': 4}
    """
    sizes = dict(program.sizes)
    for dim, size in given.items():
        if size is None:
            continue
        require(size >= 1, dim, size, "must be at least 1")
        require(dim in sizes, dim, size, f"{program.name} has no dimension of this name: its sizes are its own")
        twins = [*TWINS.get(dim, ()), *(twin for twin, of in program.like.items() if of == dim)]
        sizes |= {each: size for each in (dim, *twins) if each in sizes}
    return replace(program, sizes=sizes)
