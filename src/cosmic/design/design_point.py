"""The design point: one complete, concrete system."""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, is_dataclass, replace
from functools import cache, cached_property
from typing import Any, Union, get_args, get_origin

from cosmic.base.caching import digest
from cosmic.base.errors import SpecError, UnknownName, require
from cosmic.base.json_types import Keywords
from cosmic.design import schema
from cosmic.design.collective_layer import Collective
from cosmic.design.compute_layer import Compute
from cosmic.design.facility_layer import Facility, Node
from cosmic.design.memory_layer import Memory
from cosmic.design.model_layer import Model, Transformer
from cosmic.design.network_layer import ABSENT, Dimension, Network
from cosmic.design.run_layer import Run
from cosmic.design.serving_layer import Serving
from cosmic.design.workload_layer import Workload

Identity = typing.Annotated[str, Keywords(pattern="^[0-9a-f]{16}$")]
MOST_CHANGED = 1_000
"""Most changed designs that a design caches."""
STACK_LAYERS = ("model", "workload", "collective", "network", "compute", "memory", "node", "facility", "run", "serving")
"""The layers of the stack: a search opens one, several or all of them."""
NO_DIMENSION = Dimension(topology=ABSENT, npus=1, bandwidth_bytes_per_s=1.0, latency_s=0.0)
"""The place of a dimension that a design does not have."""
SERVED_FIELDS = ("precision", "dp", "tp", "cp", "pp", "ep")
"""Fields of the workload that a file of a design that serves a load always states."""
ANY_STEP = {"task": "decode", "sequence": 1, "global_batch": 1}
"""The step of a design that serves a load, which its files leave out: the load decides what a step has."""


@dataclass(frozen=True, kw_only=True)
class DesignPoint:
    """One complete system: everything that evaluation needs, nothing left to default."""

    model: Model
    workload: Workload
    collective: Collective
    network: Network
    compute: Compute
    memory: Memory
    node: Node = Node()
    facility: Facility = Facility()
    run: Run = Run()
    serving: Serving | None = None
    """The load of requests that it serves; a design without one is a single step."""

    def __post_init__(self) -> None:
        count, expected = len(self.collective.algorithms), len(self.network.dims)
        rule = f"the network has {expected} dimensions, and each takes one algorithm"
        require(count == expected, "collective.algorithms", list(self.collective.algorithms), rule)
        if self.serving is not None:
            links, faults = any(dim.links for dim in self.network.dims), bool(self.network.faults)
            rule = "requests under a load are priced on named topologies without faults"
            require(not faults, "network.faults", f"{len(self.network.faults)} faults", rule)
            require(not links, "network.dims", "links", rule)

    def __getstate__(self) -> dict[str, Any]:
        """Return the layers alone: caches may hold what no other process can read."""
        return {stack: self.__dict__[stack] for stack in STACK_LAYERS}

    @cached_property
    def fields(self) -> dict[str, Any]:
        """Every leaf field, by its path."""
        return dict(schema.leaf_fields(self))

    def changed(self, changes: Mapping[str, Any]) -> DesignPoint:
        """Return this design with some fields changed; equal changes return the same cached design."""
        key = tuple(changes.items())
        if key not in self._changed:
            if len(self._changed) >= MOST_CHANGED:
                self._changed.clear()
            self._changed[key] = schema.assign_fields(self, changes)
        return self._changed[key]

    @cached_property
    def compact(self) -> DesignPoint:
        """The same design without places of dimensions that it does not have (`ABSENT`)."""
        present = [index for index, dim in enumerate(self.network.dims) if dim.topology != ABSENT]
        if len(present) == len(self.network.dims):
            return self
        dims, algorithms = self.network.dims, self.collective.algorithms
        return replace(
            self,
            network=replace(self.network, dims=tuple(dims[index] for index in present)),
            collective=replace(self.collective, algorithms=tuple(algorithms[index] for index in present)),
        )

    def padded(self, dims: int) -> DesignPoint:
        """Return the same design padded to *dims* dimensions with absent outer ones."""
        missing = dims - len(self.network.dims)
        if missing <= 0:
            return self
        return replace(
            self,
            network=replace(self.network, dims=(*self.network.dims, *(NO_DIMENSION,) * missing)),
            collective=replace(self.collective, algorithms=(*self.collective.algorithms, *("ring",) * missing)),
        )

    @cached_property
    def _changed(self) -> dict[tuple[tuple[str, Any], ...], DesignPoint]:
        return {}

    @cached_property
    def known(self) -> dict[Any, Any]:
        """A cache of results about the design."""
        return {}

    @cached_property
    def identity(self) -> Identity:
        """Hash of the complete design: equal for equal designs, however they were written."""
        # Of the fields that differ from their defaults, so that a field added later does not change it.
        return digest(json.dumps(schema.write_value(self, brief=True), sort_keys=True))[:16]


def model_title(model: Model) -> str:
    """Return what a model is called: where its checkpoint has another name, that and whose shapes it has.

    >>> from cosmic.search.mapping.design_completion import load_design
    >>> model_title(load_design("deepseek-ai/DeepSeek-R1@dgx-h200:8").model)
    'DeepSeek-R1 (shapes of deepseek-v3)'
    """
    asked = model.checkpoint if isinstance(model, Transformer) else ""
    own = asked.rstrip("/").rpartition("/")[2]
    plain = ["".join(filter(str.isalnum, name.lower())) for name in (own, model.name)]
    return model.name if not own or plain[0] == plain[1] else f"{own} (shapes of {model.name})"


def design_to_tree(point: DesignPoint) -> dict[str, Any]:
    """Return *point* as the plain data of a design file: workload and collective in full, others without defaults.

    So is a prefill pool: what a file does not say of its mapping is searched. Of the workload of a design that serves
    a load, mapping and precision are written and what differs from defaults: nothing else has an effect.
    """
    tree: dict[str, Any] = schema.write_value(point, brief=True)
    workload = schema.write_value(point.workload)
    if point.serving is not None:
        keys = {*tree["workload"], *SERVED_FIELDS}
        usual = ANY_STEP.items()
        workload = {key: value for key, value in workload.items() if key in keys and (key, value) not in usual}
        tree["serving"] = {"engine": point.serving.engine, **tree["serving"]}
        if point.serving.prefill is not None:
            tree["serving"]["prefill"] = schema.write_value(point.serving.prefill)
    return tree | {"workload": workload, "collective": schema.write_value(point.collective)}


# ---- Short names of fields: ``tp`` stands for ``workload.tp`` wherever a path may be written

FIRST_KEYS = (*STACK_LAYERS, "system", "accelerators", "prices")
"""First keys of full paths; quotes are no field, and become some when a design is loaded."""
NESTED_PATTERNS = ("node", "serving.prefill", "serving.load.classes.*", "network.dims.*.links.*", "network.faults.*")
"""Fields under these bear the names of others: short names that others have too are of those."""


MEANT_OTHERWISE = {
    "replicas": "instances that prefill are prefill.replicas; those of one pool are dp over their ranks of attention"
}
"""Ends of one path alone that a reader takes for something else, each with what to write instead."""


def full_path(name: str) -> str:
    """Return the full path of a field, given it or an end that only it has.

    A field in a list needs its index, or ``*`` for each. A name that ends no path is returned unchanged; the reader of
    the file refuses it.

    >>> full_path("tp"), full_path("prefill.tp"), full_path("{dp,tp}")
    ('workload.tp', 'serving.prefill.tp', 'workload.{dp,tp}')
    """
    if name.partition(".")[0] in FIRST_KEYS:
        return name
    if name in MEANT_OTHERWISE:
        raise SpecError("path", name, MEANT_OTHERWISE[name])
    if name.startswith("{") and name.endswith("}"):
        return _expand_joint(name)
    parts = name.split(".")
    ending = [outer for outer in (_find_outer(parts, pattern) for pattern in field_patterns()) if outer is not None]
    candidates = [outer for outer in ending if outer not in NESTED_PATTERNS] or ending
    if len(candidates) == 1 and "*" not in candidates[0]:
        return f"{candidates[0]}.{name}"
    if candidates:
        raise SpecError(
            "path", name, f"could be {' or '.join(f'{outer}.{name}' for outer in candidates[:3])}: write it in full"
        )
    if len(parts) == 1:
        raise UnknownName.among(
            "path", name, "field", {part for pattern in field_patterns() for part in pattern.split(".")[1:]} - {"*"}
        )
    return name


def _expand_joint(name: str) -> str:
    """Return the path of several fields of one layer, given as ``{dp,tp,pp}``."""
    paths = [full_path(part.strip()) for part in name[1:-1].split(",")]
    layers = {path.rpartition(".")[0] for path in paths}
    if len(layers) > 1:
        raise SpecError("path", name, f"names fields of several layers: {', '.join(sorted(layers))}")
    return f"{layers.pop()}.{{{','.join(path.rpartition('.')[2] for path in paths)}}}"


def _find_outer(parts: list[str], pattern: str) -> str | None:
    """Return the keys before *parts* in the path *pattern*; None if it does not end in them."""
    outer, inner = pattern.split(".")[: -len(parts)], pattern.split(".")[-len(parts) :]
    matches = len(inner) == len(parts) and outer and all(map(_matches_key, parts, inner))
    return ".".join(outer) if matches else None


def _matches_key(part: str, key: str) -> bool:
    return part == key or (key == "*" and part.isdecimal())


@cache
def field_patterns() -> dict[str, schema.FieldSlot]:
    """Return every field that a design can have by its path, with ``*`` for the index in a list."""
    return dict(_walk_patterns(schema.FieldSlot("", "", DesignPoint), ""))


def _walk_patterns(slot: schema.FieldSlot, path: str) -> Iterator[tuple[str, schema.FieldSlot]]:
    origin = get_origin(slot.hint)
    if origin in (Union, types.UnionType):
        for option in get_args(slot.hint):
            yield from _walk_patterns(slot._replace(hint=option), path)
    elif origin is tuple:
        yield path, slot
        yield from _walk_patterns(slot._replace(hint=get_args(slot.hint)[0]), f"{path}.*")
    elif is_dataclass(slot.hint):
        for inner in schema.slots(typing.cast(type, slot.hint)).values():
            yield from _walk_patterns(inner, f"{path}.{inner.key}" if path else inner.key)
    elif slot.hint is not type(None):
        yield path, slot


# ---- Fields of engines that users bring: what such an engine has to choose from, besides the fields of a design


@dataclass(frozen=True)
class EngineFields:
    """One choice of an engine's own fields. It has the functions of a design that are about paths, and no layers."""

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone, without caches."""
        return {slot.name: self.__dict__[slot.name] for slot in schema.slots_of(self).values()}

    @cached_property
    def fields(self) -> dict[str, Any]:
        """Every leaf field, by its path."""
        return dict(schema.leaf_fields(self))

    @property
    def compact(self) -> EngineFields:
        """The same: nothing is padded."""
        return self

    def padded(self, _: int) -> EngineFields:
        """Return the same: there are no dimensions."""
        return self

    @cached_property
    def identity(self) -> str:
        """A short hash that names the choice."""
        content = [type(self).__qualname__, schema.write_value(self)]
        return digest(json.dumps(content, sort_keys=True))[:16]
