"""Keys of files: designs from their dataclasses, parameter sets, and what the catalog's files hold."""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Iterator
from dataclasses import MISSING, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin

from cosmic import catalog
from cosmic.design import schema
from cosmic.design.collective import Collective
from cosmic.design.compute import Compute
from cosmic.design.engine import Engine
from cosmic.design.memory import Memory
from cosmic.design.model import Model
from cosmic.design.network import Network
from cosmic.design.workload import Workload
from cosmic.loading.designs import KEYS as DESIGN_KEYS
from cosmic.psa.files import KEYS as SPACE_KEYS
from cosmic.psa.parameters import MAX_VALUES
from generation.text import attribute_docs, escape, page, prose, source_link, table

INTRODUCTION = """
What may stand in a design, in a parameter set and in an entry of the catalog. A quantity is text with its unit
(`400 Gbps`, `80 GiB`, `500 ns`); a bare number is refused where a unit is needed. Every key is addressed by its path,
such as `network.dims.0.bandwidth`: in `--set`, in parameters and in expressions. A key that does not exist is refused
with what was probably meant. With examples: [designs and parameter sets](../parameter-set.md).
"""
LAYERS: dict[str, Any] = {
    "model": Model,
    "workload": Workload,
    "collective": Collective,
    "network": Network,
    "compute": Compute,
    "memory": Memory,
}
IN_DESIGN = {
    "model": "A name of the catalog, the path of a model file or of a Hugging Face `config.json`, or the keys below. "
    "`{base: NAME, …}` changes a known one.",
    "system": "A system of the catalog, `NAME` or `NAME:NPUS`: network, accelerator, collectives and usual mapping.",
    "workload": "The keys below; a mapping that is not given is found by rule.",
    "collective": "The keys below; an algorithm that is not given is the one that suits its dimension.",
    "network": "The keys below; needed where there is no system.",
    "compute": "A name of the catalog, the path of a file as `accelerator`, or the keys below.",
    "memory": "The keys below; the accelerator brings its own along.",
}
IN_SPACE = {
    "version": "The format: 1.",
    "name": "What to call it; by default, as its file.",
    "title": "For people.",
    "source": "Where its numbers are from.",
    "notes": "For people.",
    "base": "The design around which things vary: `MODEL@SYSTEM`, a design file, or a design.",
    "parameters": "What varies: paths, and the values of each (below).",
    "derived": "Fields that follow from others: paths, and an expression for each.",
    "constraints": "Expressions that must hold, and limits on metrics, such as `memory_bytes <= 80 GB`.",
    "objective": "The metric to better; by default `step_s`.",
    "workloads": "Several workloads that one system is to run: for each its `weight`, and what it changes in the base.",
    "stacks": "The layers that are opened; the others stay as in the base.",
}
DOMAINS = [
    ["`[a, b, c]`", "These values."],
    ["`{values: [a, b], shared: true}`", "With `*` in the path: one value for all entries, instead of one for each."],
    ["`{from: a, to: b, step: c}`", "From a to b, both included where the step meets it; quantities with units."],
    ["`{powers_of_two: [a, b]}`", "The powers of two from a to b."],
    ["`{split: npus, powers_of_two: true}`", "Of `path.{x,y,z}`: every way to write a number as a product."],
    ["`[[a, b], [c, d]]`", "Of `path.{x,y}`: these combinations."],
]
KINDS = {
    "models": "An architecture, and the sequence and batch that are usual with it.",
    "accelerators": "A data sheet, with what was fitted on measurements.",
    "systems": "Accelerators joined by a network; `npus: rest` marks the dimension that grows.",
    "links": "A class of link: its bandwidth, and how libraries drive it.",
    "nodes": "A host, for prices and power.",
    "engines": "A serving engine: what it adds to its kernels, fitted on measurements; its keys are below.",
    "spaces": "A parameter set.",
    "strategies": "A table of annotations: which dimensions of which tensors are split over which axes.",
}


def make() -> str:
    """Return the page; a key that nobody described is a mistake here, not a gap on the page."""
    parts = [INTRODUCTION, "## A design", _described(DESIGN_KEYS, IN_DESIGN)]
    for name, hint in LAYERS.items():
        parts += [f"## {name}", *_layer(hint, name)]
    parts += ["## A parameter set", _described(SPACE_KEYS, IN_SPACE), "Values of a parameter:"]
    parts += [table(["written as", "means"], DOMAINS), f"At most {MAX_VALUES:,} values each.", *_catalog()]
    return page("Keys of files", *parts)


def _described(keys: tuple[str, ...], texts: dict[str, str]) -> str:
    if set(keys) != set(texts):
        raise LookupError(f"describe these keys, and no others: {sorted(set(keys) ^ set(texts))}")
    return table(["key", "meaning"], [[f"`{key}`", texts[key]] for key in keys])


def _layer(hint: Any, path: str) -> Iterator[str]:
    """Yield the tables of a layer: of each class that it can be, and of what these hold."""
    classes: list[type] = list(get_args(hint)) or [hint]
    for cls in classes:
        if len(classes) > 1:
            names = ", ".join(f"`{name}`" for name in schema.families(cls))
            yield f"### {cls.__name__}: `family` is {names}"
        yield from _keys(cls, path)


def _keys(cls: type, path: str) -> Iterator[str]:
    """Yield a class's own table, then those of the classes in it."""
    docs, known = attribute_docs(cls), schema.slots(cls)
    yield f"{prose(cls.__doc__)}\n\nDefined in {source_link(cls)}."
    rows = [[f"`{slot.key}`", _type(slot), _default(slot), escape(docs.get(slot.name, ""))] for slot in known.values()]
    yield table(["key", "type", "default", "meaning"], rows)
    for slot in known.values():
        for inner in (slot.hint, *get_args(slot.hint)):
            if is_dataclass(inner):
                place = f"{path}.{slot.key}" + (".*" if get_origin(slot.hint) is tuple else "")
                yield f"### {place}"
                yield from _keys(inner, place)  # type: ignore[arg-type]  # a class, not a value of one


def _type(slot: schema.Slot) -> str:
    """Return in words what may stand there."""
    hint = slot.hint
    if get_origin(hint) in (Union, types.UnionType):
        hint = next(each for each in get_args(hint) if each is not type(None))
    many = get_origin(hint) is tuple
    inner = get_args(hint)[0] if many else hint
    choices = get_args(inner) if get_origin(inner) is Literal else tuple(slot.names or ())
    if choices:
        one = ", ".join(f"`{each}`" for each in choices)
        return f"list of {one}" if many else f"one of {one}"
    words = {int: "whole number", float: "number", str: "text", bool: "`true` or `false`"}
    word = f"quantity in {slot.dimension}" if slot.dimension else words.get(inner, "keys, see below")
    return f"list: {word}" if many else word


def _default(slot: schema.Slot) -> str:
    if slot.default is MISSING:
        return "required"
    if slot.default in (None, ""):
        return ""
    if is_dataclass(slot.default):
        return "as below"
    written = schema.write(slot.default, slot.dimension)
    shown = {True: "true", False: "false"}.get(written, written) if isinstance(written, bool) else written
    return f"`{shown}`".replace("'", "")


def _catalog() -> Iterator[str]:
    """Yield which keys the files of each kind in the catalog have."""
    yield "## Entries of the catalog"
    yield (
        "Files of the package, and your own in folders that `COSMIC_PATH` lists ([how](../how-to/index.md)). "
        "`cosmic list KIND` names them."
    )
    if set(KINDS) != set(catalog.KINDS):
        raise LookupError(f"describe these kinds, and no others: {sorted(set(KINDS) ^ set(catalog.KINDS))}")
    for kind, text in KINDS.items():
        entries = [catalog.entry(kind, name) for name in catalog.names(kind)]
        counts = Counter(key for entry in entries for key in entry)
        rows = []
        for key in sorted(counts, key=lambda key: (-counts[key], key)):
            sample = next(entry[key] for entry in entries if key in entry)
            needed = "yes" if key in catalog.NEEDED.get(kind, {}) else ""
            rows.append([f"`{key}`", needed, f"{counts[key]} of {len(entries)}", _shape(sample)])
        yield f"### {kind}\n\n{text}\n\n" + table(["key", "needed", "in how many", "what stands there"], rows)
        if kind == "engines":
            yield from _keys(Engine, "engine")


def _shape(value: Any) -> str:
    if isinstance(value, dict):
        return "keys and values"
    if isinstance(value, list):
        return "a list"
    return "text" if isinstance(value, str) and len(value) > 40 else f"such as `{value}`"
