"""One reader and one writer for every value of a design, driven by the dataclasses themselves.

A frozen dataclass says everything that a file needs: the keys (field names without their unit), the types,
the units, the defaults, the invariants. This module turns trees of plain data (what YAML gives) into such
values and back, and addresses any field by its dotted path (``network.dims.0.bandwidth``).
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from cosmic import units
from cosmic.errors import SpecError, UnknownName, join
from cosmic.units import Dimension

DERIVED: Any = None
"""Default of a field that its class fills in from other fields when it is not given."""


class Absent:
    """Stands for a value that was not given, in messages."""

    def __repr__(self) -> str:
        return "(missing)"


class Slot(NamedTuple):
    """One field of a value: its name inside, its key in files, its type and unit."""

    name: str
    key: str
    hint: Any
    dimension: Dimension | None = None
    default: Any = MISSING
    names: Iterable[str] | None = None
    """The names that the field can hold, where a registry knows them."""

    def choices(self) -> frozenset[str] | None:
        """Return the only texts that the field can hold; None where any will do."""
        if get_origin(self.hint) is Literal:
            return frozenset(get_args(self.hint))
        return None if self.names is None else frozenset(self.names)


@cache
def slots(cls: type) -> dict[str, Slot]:
    """Return the fields of the dataclass *cls* by their key in files."""
    hints = typing.get_type_hints(cls)
    found = {}
    for field in fields(cls):
        key, dimension = units.split_name(field.name)
        found[key] = Slot(field.name, key, hints[field.name], dimension, field.default, field.metadata.get("names"))
    return found


# ---------------------------------------------------------------------------------------------- reading


def read(hint: Any, tree: Any, where: str, dimension: Dimension | None = None) -> Any:
    """Return the value of type *hint* that *tree* describes; raise `SpecError` naming the place if it does not."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _read_union(get_args(hint), tree, where, dimension)
    if dimension is not None:
        return _read_quantity(tree, where, dimension)
    if origin is tuple:
        return _read_list(get_args(hint)[0], tree, where)
    if origin is Literal:
        return _read_choice(get_args(hint), tree, where)
    if is_dataclass(hint):
        return _read_struct(typing.cast(type, hint), tree, where)
    return _read_scalar(hint, tree, where)


def _read_union(options: tuple[Any, ...], tree: Any, where: str, dimension: Dimension | None) -> Any:
    if type(None) in options and tree is None:
        return None
    options = tuple(option for option in options if option is not type(None))
    if len(options) == 1:
        return read(options[0], tree, where, dimension)
    family = _mapping(tree, where).get("family", Absent())
    by_family = {name: option for option in options for name in families(option)}
    if not isinstance(family, str) or family not in by_family:
        raise UnknownName.among(join(where, "family"), family, "family", by_family)
    return read(by_family[family], tree, where)


def families(cls: type) -> tuple[str, ...]:
    """Return the values of ``family`` that mark a tree as a *cls*, where a field may hold one of several classes."""
    return get_args(slots(cls)["family"].hint)


def _read_quantity(tree: Any, where: str, dimension: Dimension) -> float:
    try:
        return units.read(tree, dimension)
    except SpecError as error:
        raise SpecError(where, error.value, error.rule) from None


def _read_list(item: Any, tree: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(tree, list | tuple):
        raise SpecError(where, tree, "must be a list")
    return tuple(read(item, entry, join(where, str(place))) for place, entry in enumerate(tree))


def _read_choice(choices: tuple[str, ...], tree: Any, where: str) -> str:
    if not isinstance(tree, str) or tree not in choices:
        raise UnknownName.among(where, tree, "choice", choices)
    return tree


_SCALARS: dict[Any, tuple[tuple[type, ...], str]] = {
    int: ((int,), "must be a whole number"),
    float: ((int, float), "must be a finite number"),
    str: ((str,), "must be text"),
    bool: ((bool,), "must be true or false"),
}


def _read_scalar(hint: Any, tree: Any, where: str) -> Any:
    accepted, rule = _SCALARS[hint]
    if not isinstance(tree, accepted) or (isinstance(tree, bool) and hint is not bool):
        raise SpecError(where, tree, rule)
    if hint is not float:
        return tree
    try:
        number = float(tree)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise SpecError(where, tree, rule)
    return number


def _read_struct(cls: type, tree: Any, where: str) -> Any:
    known = slots(cls)
    given = {}
    for key, entry in _mapping(tree, where).items():
        if key not in known:
            raise UnknownName.key(join(where, str(key)), entry, known)
        slot = known[key]
        given[slot.name] = read(slot.hint, entry, join(where, key), slot.dimension)
    for slot in known.values():
        if slot.default is MISSING and slot.name not in given:
            raise SpecError(join(where, slot.key), Absent(), "is required")
    try:
        return cls(**given)
    except SpecError as error:
        raise error.inside(where) from None


def _mapping(tree: Any, where: str) -> Mapping[Any, Any]:
    if not isinstance(tree, Mapping):
        raise SpecError(where, tree, "must be a mapping of keys to values")
    return tree


# ---------------------------------------------------------------------------------------------- writing


def write(value: Any, dimension: Dimension | None = None, *, brief: bool = False) -> Any:
    """Return *value* as plain data that `read` turns back into exactly *value*.

    Fields that are None are left out; with *brief*, so are those that hold their default, except ``family``,
    by which the reader tells one kind of model from another.
    """
    if dimension is not None and value is not None:
        return units.show(value, dimension)
    if isinstance(value, tuple):
        return [write(item, brief=brief) for item in value]
    if isinstance(value, Mapping):
        return {key: write(item, brief=brief) for key, item in value.items()}
    if is_dataclass(value):
        pairs = ((slot, getattr(value, slot.name)) for slot in slots(type(value)).values())
        return {
            slot.key: write(item, slot.dimension, brief=brief)
            for slot, item in pairs
            if item is not None and not (brief and item == slot.default and slot.key != "family")
        }
    return value


# ------------------------------------------------------------------------------------------------ paths


def leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and content of every field below *value* that holds no further fields."""
    if is_dataclass(value):
        for slot in slots(type(value)).values():
            yield from leaves(getattr(value, slot.name), join(prefix, slot.key))
    elif isinstance(value, tuple):
        for place, item in enumerate(value):
            yield from leaves(item, join(prefix, str(place)))
    else:
        yield prefix, value


def slot_at(value: Any, path: str) -> Slot:
    """Return what is known of the field at *path* below *value*; raise `UnknownName` if there is none."""
    slot = Slot("", "", type(value))
    for key in path.split("."):
        slot = _step(value, slot, key, path)
        value = _child(value, slot, key)
    return slot


def get(value: Any, path: str) -> Any:
    """Return what stands at *path* below *value*."""
    for key in path.split("."):
        value = _child(value, _step(value, Slot("", "", type(value)), key, path), key)
    return value


def _step(value: Any, slot: Slot, key: str, path: str) -> Slot:
    """Return the slot that *key* names in *value*, itself found in *slot*."""
    if isinstance(value, tuple):
        if not key.isdecimal() or int(key) >= len(value):
            raise SpecError("path", path, f"'{key}' is none of the {len(value)} places 0 … {len(value) - 1}")
        item = get_args(slot.hint)[0] if get_args(slot.hint) else type(value[0])
        return Slot("", key, item, names=slot.names)
    known = slots(type(value)) if is_dataclass(value) else {}
    if key not in known:
        raise UnknownName.among("path", path, "field", [path.replace(key, name) for name in known])
    return known[key]


def _child(value: Any, slot: Slot, key: str) -> Any:
    return value[int(key)] if isinstance(value, tuple) else getattr(value, slot.name)


def assign(value: Any, changes: Mapping[str, Any]) -> Any:
    """Return *value* with other contents (SI values, not file strings) at the given paths; invariants are checked.

    Each dataclass on the way is rebuilt once, whatever the number of changes below it.
    """
    below: dict[str, dict[str, Any]] = {}
    here: dict[str, Any] = {}
    for path, content in changes.items():
        key, _, rest = path.partition(".")
        if rest:
            below.setdefault(key, {})[rest] = content
        else:
            here[key] = content
    if isinstance(value, tuple):
        items = list(value)
        for key, content in here.items():
            items[int(key)] = content
        for key, nested in below.items():
            items[int(key)] = _assign_inside(items[int(key)], nested, key)
        return tuple(items)
    known = slots(type(value))
    renewed = {known[key].name: content for key, content in here.items()}
    for key, nested in below.items():
        renewed[known[key].name] = _assign_inside(getattr(value, known[key].name), nested, key)
    return replace(value, **renewed)


def _assign_inside(value: Any, changes: Mapping[str, Any], key: str) -> Any:
    try:
        return assign(value, changes)
    except SpecError as error:
        raise error.inside(key) from None
