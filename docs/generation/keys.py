"""Keys of files: designs (from their dataclasses), parameter sets, and entries of the catalog."""

from __future__ import annotations

import types
from collections import Counter
from collections.abc import Iterator
from dataclasses import MISSING, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin

from cosmic.design import catalog_entries, schema
from cosmic.design.collective_layer import Collective
from cosmic.design.compute_layer import Compute
from cosmic.design.facility_layer import Facility, Node
from cosmic.design.field_facts import facts_of
from cosmic.design.loading import DESIGN_KEYS
from cosmic.design.memory_layer import Memory
from cosmic.design.model_layer import Model
from cosmic.design.network_layer import Network
from cosmic.design.run_layer import Run
from cosmic.design.serving_engine import Engine
from cosmic.design.serving_layer import Serving
from cosmic.design.workload_layer import Workload
from cosmic.search.space.parameters import MAX_VALUES
from cosmic.search.space.space_files import KEYS as SPACE_KEYS
from generation.text import attribute_docs, escape, page, prose, source_link, table

INTRODUCTION = """
The keys of a design, of a parameter set and of an entry of the catalog. A quantity is text with its unit (`400 Gbps`,
`80 GiB`, `500 ns`); a number without a unit is refused where one is needed. A field is addressed by its path, such as
`network.dims.0.bandwidth`, or by the end of it where that is unique, such as `tp`: in `--set`, in parameters and in
expressions. An unknown key is refused with a suggestion. With examples:
[designs and parameter sets](../explanation/designs.md).
"""
LAYERS: dict[str, Any] = {
    "model": Model,
    "workload": Workload,
    "collective": Collective,
    "network": Network,
    "compute": Compute,
    "memory": Memory,
    "node": Node,
    "facility": Facility,
    "run": Run,
    "serving": Serving,
}
IN_DESIGN = {
    "model": "A name of the catalog, the path of a model file or of a Hugging Face `config.json`, or the keys below. "
    "`{base: NAME, …}` changes a known one.",
    "system": "A system of the catalog, `NAME` or `NAME:NPUS`: network, accelerator, collectives and default mapping.",
    "workload": "The keys below; a mapping that is not given is chosen by rule.",
    "collective": "The keys below; the default algorithm follows from the topology of its dimension.",
    "network": "The keys below; required without a system.",
    "compute": "A name of the catalog, the path of a file as `accelerator`, or the keys below.",
    "memory": "The keys below; by default, the memory of the accelerator.",
    "node": "A name of the catalog, or the keys below; by default, that of the system.",
    "facility": "The keys below: the building, and the terms of owning a cluster.",
    "run": "The keys below: the length of a training run, failures and checkpoints.",
    "serving": "The keys below, for a design that serves a load of requests; a design without it is a single step.",
}
IN_SPACE = {
    "version": "The format: 1.",
    "name": "Its name; by default, that of its file.",
    "title": "A description.",
    "source": "Where its numbers are from.",
    "notes": "Remarks.",
    "engine": "The engine that evaluates it, of those that you bring; base and parameters may be its own fields.",
    "base": "The design around which fields vary: `MODEL@SYSTEM`, a design file, or a design.",
    "parameters": "The fields that vary: paths, and the values of each (below). `system` and `accelerators` choose "
    "whole machines.",
    "derived": "Fields that follow from others: paths, and an expression for each.",
    "constraints": "Expressions that must hold, and limits on metrics, such as `memory_bytes <= 80 GB`.",
    "objective": "The metric to optimise; by default `step_s`; of designs that serve, `tokens_per_s` or `tpot_s`.",
    "workloads": "Several workloads on one system: for each its `weight`, and the fields of the base that it changes.",
    "stacks": "The layers to search; the others stay as in the base.",
    "provision": "What to spend on bandwidth: `budget`, `objective`, `limits`; each design gets what is best for it.",
}
DOMAINS = [
    ["`[a, b, c]`", "These values."],
    ["`{values: [a, b], shared: true}`", "With `*` in the path: one value for all entries, instead of one for each."],
    ["`{from: a, to: b, step: c}`", "From a to b in steps of c, b included if a step meets it; with units."],
    ["`{powers_of_two: [a, b]}`", "The powers of two from a to b."],
    ["`{split: npus, powers_of_two: true}`", "Of `path.{x,y,z}`: every way to write a number as a product."],
    ["`[[a, b], [c, d]]`", "Of `path.{x,y}`: these combinations."],
]
KINDS = {
    "models": "An architecture, with its usual sequence length and batch.",
    "accelerators": "A data sheet, with the parameters fitted on measurements.",
    "systems": "Accelerators connected by a network; `npus: rest` marks the dimension that grows.",
    "links": "A class of link: its bandwidth, and what communication libraries achieve on it.",
    "nodes": "A host: its price and power.",
    "engines": "A serving engine: what it adds to its kernels, fitted on measurements; its keys are below.",
    "spaces": "A parameter set.",
    "strategies": "A table of annotations: which dimensions of which tensors are split over which axes.",
}


def make() -> str:
    """Return the page; a key without a description raises an error."""
    parts = [INTRODUCTION, "## A design", _described(DESIGN_KEYS, IN_DESIGN)]
    for name, hint in LAYERS.items():
        parts += [f"## {name}", *_layer(hint, name), *(_flags(hint) if name == "workload" else ())]
    parts += ["## A parameter set", _described(SPACE_KEYS, IN_SPACE), "Values of a parameter:"]
    parts += [table(["written as", "means"], DOMAINS), f"At most {MAX_VALUES:,} values each.", *_catalog()]
    return page("Keys of files", *parts)


def _described(keys: tuple[str, ...], texts: dict[str, str]) -> str:
    if set(keys) != set(texts):
        raise LookupError(f"describe these keys, and no others: {sorted(set(keys) ^ set(texts))}")
    return table(["key", "meaning"], [[f"`{key}`", texts[key]] for key in keys])


def _layer(hint: Any, path: str) -> Iterator[str]:
    """Yield the tables of a layer: one for each class that it can be, and for the classes of its fields."""
    classes: list[type] = list(get_args(hint)) or [hint]
    for cls in classes:
        if len(classes) > 1:
            names = ", ".join(f"`{name}`" for name in schema.families(cls))
            yield f"### {cls.__name__}: `family` is {names}"
        yield from _keys(cls, path)


def _keys(cls: type, path: str) -> Iterator[str]:
    """Yield a class's own table, then those of the classes of its fields."""
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


def _flags(cls: type) -> Iterator[str]:
    """Yield the table of the arguments that tell frameworks the keys of a layer."""
    yield "### What frameworks call it"
    yield (
        "The arguments that say one key each, as `cosmic design export` writes them and `cosmic design import` reads them. "
        "What takes several keys or arguments together, such as the layout of a pipeline, is not in this table."
    )
    rows = []
    for name, about in facts_of(cls).items():
        for target, flag in about.flags.items():
            told = [flag.name] if flag.name else list(dict.fromkeys(key for each in flag.sets.values() for key in each))
            values = ", ".join(f"{_word(ours)}: {_word(theirs)}" for ours, theirs in flag.spelled.items() if flag.name)
            if told:
                rows.append([f"`{name}`", target, ", ".join(f"`{key}`" for key in told), values])
    yield table(["key", "target", "arguments", "values"], rows)


def _word(value: Any) -> str:
    words = value if isinstance(value, list) else [value]
    return f"`{' '.join(map(str, words))}`"


def _type(slot: schema.FieldSlot) -> str:
    """Return the type of a key in words."""
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


def _default(slot: schema.FieldSlot) -> str:
    if slot.default is MISSING:
        return "required"
    if slot.default in (None, ""):
        return ""
    if is_dataclass(slot.default):
        return "as below"
    written = schema.write_value(slot.default, slot.dimension)
    shown = {True: "true", False: "false"}.get(written, written) if isinstance(written, bool) else written
    return f"`{shown}`".replace("'", "")


def _catalog() -> Iterator[str]:
    """Yield the keys of each kind of catalog file."""
    yield "## Entries of the catalog"
    yield (
        "Files of the package, and your own in folders that `COSMIC_PATH` lists ([how](../how-to/index.md)). "
        "`cosmic catalog list KIND` names them."
    )
    if set(KINDS) != set(catalog_entries.KINDS):
        raise LookupError(f"describe these kinds, and no others: {sorted(set(KINDS) ^ set(catalog_entries.KINDS))}")
    for kind, text in KINDS.items():
        entries = [catalog_entries.read_entry(kind, name) for name in catalog_entries.entry_names(kind)]
        counts = Counter(key for entry in entries for key in entry)
        rows = []
        for key in sorted(counts, key=lambda key: (-counts[key], key)):
            sample = next(entry[key] for entry in entries if key in entry)
            needed = "yes" if key in catalog_entries.REQUIRED_KEYS.get(kind, {}) else ""
            rows.append([f"`{key}`", needed, f"{counts[key]} of {len(entries)}", _shape(sample)])
        yield f"### {kind}\n\n{text}\n\n" + table(["key", "required", "used in", "value"], rows)
        if kind == "engines":
            yield from _keys(Engine, "engine")


def _shape(value: Any) -> str:
    if isinstance(value, dict):
        return "keys and values"
    if isinstance(value, list):
        return "a list"
    return "text" if isinstance(value, str) and len(value) > 40 else f"such as `{value}`"
