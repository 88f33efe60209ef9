"""Short names of fields: ``tp`` stands for ``workload.tp`` wherever a path may be written."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from dataclasses import is_dataclass
from functools import cache
from typing import Union, get_args, get_origin

from cosmic.base.errors import SpecError, UnknownName
from cosmic.design import schema
from cosmic.design.design_point import STACK_LAYERS, DesignPoint

FIRST_KEYS = (*STACK_LAYERS, "system", "accelerators", "prices")
"""First keys of full paths; quotes are no field, and become some when a design is loaded."""
NESTED_PATTERNS = ("node", "serving.prefill", "serving.load.classes.*", "network.dims.*.links.*", "network.faults.*")
"""Fields under these bear the names of others: short names that others have too are of those."""


def full_path(name: str) -> str:
    """Return the full path of a field, given it or an end that only it has.

    A field in a list needs its index, or ``*`` for each. A name that ends no path is returned unchanged; the reader of
    the file refuses it.

    >>> full_path("tp"), full_path("prefill.tp"), full_path("replicas"), full_path("{dp,tp}")
    ('workload.tp', 'serving.prefill.tp', 'serving.prefill.replicas', 'workload.{dp,tp}')
    """
    if name.partition(".")[0] in FIRST_KEYS:
        return name
    if name.startswith("{") and name.endswith("}"):
        return _expand_joint(name)
    parts = name.split(".")
    ending = [outer for outer in (_find_outer(parts, pattern) for pattern in field_patterns()) if outer is not None]
    found = [outer for outer in ending if outer not in NESTED_PATTERNS] or ending
    if len(found) == 1 and "*" not in found[0]:
        return f"{found[0]}.{name}"
    if found:
        raise SpecError(
            "path", name, f"could be {' or '.join(f'{outer}.{name}' for outer in found[:3])}: write it in full"
        )
    if len(parts) == 1:
        raise UnknownName.among(
            "path", name, "field", {part for pattern in field_patterns() for part in pattern.split(".")[1:]} - {"*"}
        )
    return name


def _expand_joint(name: str) -> str:
    """Return the path of several fields of one layer, given as ``{dp,tp,pp}``."""
    paths = [full_path(each.strip()) for each in name[1:-1].split(",")]
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
