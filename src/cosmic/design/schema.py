"""One reader and one writer for every value of a design, driven by the dataclasses themselves.

A field's name inside ends in its unit, its key in files does not. Numbers have bounds that are wider than anything that
could be built and narrow enough to compute with: the cost models multiply and divide these numbers, and within the
bounds no product overflows, in 64-bit integers or floats, and no quotient is infinite. A field can narrow its own:
``field(metadata={"least": 1, "most": 1024})``.
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import MISSING, fields, is_dataclass, replace
from functools import cache
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin

from cosmic.base import units
from cosmic.base.errors import LONGEST_PATH, SpecError, UnknownName, as_key, check_text, join_path, shorten
from cosmic.base.units import PhysicalDimension

DERIVED_FIELD: Any = None
"""Default of a field that its class derives from other fields."""


class Absent:
    """Stands for a missing value in messages."""

    def __repr__(self) -> str:
        return "(missing)"


class FieldSlot(NamedTuple):
    """One field of a value: its name inside, its key in files, its type and unit."""

    name: str
    key: str
    hint: Any
    dimension: PhysicalDimension | None = None
    default: Any = MISSING
    names: Iterable[str] | None = None
    """Names that the field can hold, if a registry has them."""
    whole: bool = False
    """Whether the field is one leaf, though it is a list of values: what is below it is only set with all the rest."""

    def choices(self) -> frozenset[str] | None:
        """Return the texts that the field can hold; None if any."""
        if get_origin(self.hint) is Literal:
            return frozenset(get_args(self.hint))
        return None if self.names is None else frozenset(self.names)


@cache
def slots(cls: type) -> dict[str, FieldSlot]:
    """Return the fields of the dataclass *cls* by their key in files."""
    # Annotations are strings here (PEP 563); resolving them is slow, hence the cache.
    hints = typing.get_type_hints(cls)
    by_key = {}
    for field in fields(cls):
        key, dimension = units.split_name(field.name)
        about = field.metadata
        is_whole = about.get("whole", False)
        by_key[key] = FieldSlot(
            field.name, key, hints[field.name], dimension, field.default, about.get("names"), is_whole
        )
    return by_key


def slots_of(value: Any) -> dict[str, FieldSlot]:
    """Return the fields of *value*; none unless it is a dataclass."""
    cls: type = type(value)
    return slots(cls) if hasattr(cls, "__dataclass_fields__") else {}


# ---- reading


def read_value(hint: Any, tree: Any, where: str, dimension: PhysicalDimension | None = None) -> Any:
    """Return *tree* as a value of type *hint*; raise a `SpecError` that names the place if it is none."""
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


def _read_union(options: tuple[Any, ...], tree: Any, where: str, dimension: PhysicalDimension | None) -> Any:
    if type(None) in options and tree is None:
        return None
    options = tuple(option for option in options if option is not type(None))
    if len(options) == 1:
        return read_value(options[0], tree, where, dimension)
    family = _read_mapping(tree, where).get("family", Absent())
    by_family = {name: option for option in options for name in families(option)}
    if not isinstance(family, str) or family not in by_family:
        raise UnknownName.among(join_path(where, "family"), family, "family", by_family)
    return read_value(by_family[family], tree, where)


def families(cls: type) -> tuple[str, ...]:
    """Return the values of ``family`` that select *cls*, where a field may hold one of several classes."""
    return get_args(slots(cls)["family"].hint)


def _read_quantity(tree: Any, where: str, dimension: PhysicalDimension) -> float:
    try:
        return units.read_quantity(tree, dimension)
    except SpecError as error:
        raise SpecError(where, error.value, error.rule) from None


def _read_list(item: Any, tree: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(tree, list | tuple):
        raise SpecError(where, tree, "must be a list")
    return tuple(read_value(item, entry, join_path(where, str(index))) for index, entry in enumerate(tree))


def _read_choice(choices: tuple[str, ...], tree: Any, where: str) -> str:
    if not isinstance(tree, str) or tree not in choices:
        raise UnknownName.among(where, tree, "choice", choices)
    return tree


INT_LIMIT = 2**63
"""Bound on whole numbers: arrays can hold them."""
_SCALARS: dict[Any, tuple[tuple[type, ...], str]] = {
    int: ((int,), "must be a whole number"),
    float: ((int, float), "must be a finite number"),
    str: ((str,), "must be text"),
    bool: ((bool,), "must be true or false"),
}


def _read_scalar(hint: Any, tree: Any, where: str) -> Any:
    accepted, rule = _SCALARS[hint]
    if hint is float and isinstance(tree, str) and (count := units.read_count(tree)) is not None:
        return count
    fits = isinstance(tree, accepted) and (hint is bool or not isinstance(tree, bool))
    if not fits:
        raise SpecError(where, tree, rule)
    if hint is int and abs(tree) >= INT_LIMIT:
        raise SpecError(where, tree, "is too large")
    if hint is str:
        return check_text(tree, where)
    if hint is not float:
        return tree
    try:
        number = float(tree)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise SpecError(where, tree, rule)
    return number


def read_source(tree: Any, where: str) -> str:
    """Return *tree* as text that names an entry of the catalog, or a file: paths are longer than names."""
    if not isinstance(tree, str):
        raise SpecError(where, tree, _SCALARS[str][1])
    return check_text(tree, where, LONGEST_PATH)


def _read_struct(cls: type, tree: Any, where: str) -> Any:
    slots_by_key = slots(cls)
    values = {}
    for key, entry in _read_mapping(tree, where).items():
        if key not in slots_by_key:
            raise UnknownName.key(join_path(where, as_key(key)), entry, slots_by_key)
        slot = slots_by_key[key]
        values[slot.name] = read_value(slot.hint, entry, join_path(where, key), slot.dimension)
    for slot in slots_by_key.values():
        if slot.default is MISSING and slot.name not in values:
            raise SpecError(join_path(where, slot.key), Absent(), "is required")
    try:
        return cls(**values)
    except SpecError as error:
        raise error.inside(where) from None


def _read_mapping(tree: Any, where: str) -> Mapping[Any, Any]:
    if not isinstance(tree, Mapping):
        raise SpecError(where, tree, "must be a mapping of keys to values")
    return tree


# ---- writing


def write_value(value: Any, dimension: PhysicalDimension | None = None, *, brief: bool = False) -> Any:
    """Return *value* as plain data that `read_value` turns back into exactly *value*.

    Fields that are None are left out; with *brief*, so are defaults, except ``family``, which selects the class.
    """
    if dimension is not None and value is not None:
        return units.format_quantity(value, dimension)
    if isinstance(value, tuple):
        return [write_value(item, brief=brief) for item in value]
    if isinstance(value, Mapping):
        return {key: write_value(item, brief=brief) for key, item in value.items()}
    if is_dataclass(value):
        pairs = ((slot, getattr(value, slot.name)) for slot in slots_of(value).values())
        return {
            slot.key: write_value(_cast_declared(item, slot.hint), slot.dimension, brief=brief)
            for slot, item in pairs
            if item is not None and not (brief and item == slot.default and slot.key != "family")
        }
    return value


def _cast_declared(item: Any, hint: Any) -> Any:
    """Return a whole number as a float if the field is one, so that equal values are written alike."""
    return float(item) if type(item) is int and float in (hint, *get_args(hint)) else item


# ---- paths


def leaf_fields(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the path and value of every leaf field below *value*."""
    if is_dataclass(value):
        for slot in slots_of(value).values():
            held, path = getattr(value, slot.name), join_path(prefix, slot.key)
            yield from [(path, held)] if slot.whole else leaf_fields(held, path)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from leaf_fields(item, join_path(prefix, str(index)))
    else:
        yield prefix, value


def slot_at(value: Any, path: str) -> FieldSlot:
    """Return the slot of the field at *path* below *value*; raise `UnknownName` if there is none."""
    slot = FieldSlot("", "", type(value))
    parts = path.split(".")
    for depth in range(len(parts)):
        slot = _find_child_slot(value, slot, parts, depth)
        value = _child_value(value, slot)
    return slot


def get_field(value: Any, path: str) -> Any:
    """Return the field at *path* below *value*."""
    parts = path.split(".")
    for depth in range(len(parts)):
        value = _child_value(value, _find_child_slot(value, FieldSlot("", "", type(value)), parts, depth))
    return value


def _find_child_slot(value: Any, slot: FieldSlot, parts: list[str], depth: int) -> FieldSlot:
    """Return the slot that the key at *depth* of a path names in *value*, which *slot* describes."""
    key = parts[depth]
    if isinstance(value, tuple):
        index = list_place(value, key)
        if index is None:
            raise SpecError(
                "path", ".".join(parts), f"{shorten(key)} is none of the {len(value)} places, which count from 0"
            )
        item = get_args(slot.hint)[0] if get_args(slot.hint) else type(value[0])
        return FieldSlot("", str(index), item, names=slot.names)
    children = slots_of(value)
    if key not in children:
        similar = [".".join([*parts[:depth], name, *parts[depth + 1 :]]) for name in children]
        raise UnknownName.among("path", ".".join(parts), "field", similar)
    return children[key]


def list_place(items: Sized, key: str) -> int | None:
    """Return *key*, digits, as an index of *items*; None if it is none."""
    if not (key.isdecimal() and len(key) <= len(str(len(items)))):
        return None
    return int(key) if int(key) < len(items) else None


def _child_value(value: Any, slot: FieldSlot) -> Any:
    return value[int(slot.key)] if isinstance(value, tuple) else getattr(value, slot.name)


def assign_fields(value: Any, changes: Mapping[str, Any]) -> Any:
    """Return *value* with the fields at the given paths changed (to SI values, not file strings); check invariants.

    Each dataclass on a path is rebuilt once, whatever the number of changes below it.
    """
    below: dict[str, dict[str, Any]] = {}
    # Paths that end at a field of this value, and those that go deeper, by their first key.
    direct: dict[str, Any] = {}
    for path, content in changes.items():
        key, _, rest = path.partition(".")
        if rest:
            below.setdefault(key, {})[rest] = content
        else:
            direct[key] = content
    for key in direct.keys() & below:
        raise SpecError("path", key, f"is set as a whole, and '{key}.{next(iter(below[key]))}' too")
    steps = {key: _find_child_slot(value, FieldSlot("", "", type(value)), [key], 0) for key in (*direct, *below)}
    renewed = dict(direct)
    for key, nested in below.items():
        renewed[key] = _assign_inside(_child_value(value, steps[key]), nested, key)
    if isinstance(value, tuple):
        items = list(value)
        for key, content in renewed.items():
            items[int(key)] = content
        return tuple(items)
    return replace(value, **{steps[key].name: content for key, content in renewed.items()})


def _assign_inside(value: Any, changes: Mapping[str, Any], key: str) -> Any:
    try:
        return assign_fields(value, changes)
    except SpecError as error:
        if error.where == "path":
            raise type(error)("path", f"{key}.{error.value}", error.rule) from None
        raise error.inside(key) from None


MOST_WHOLE = 2**31
"""Largest whole number: the product of two, such as tokens of a step, fits into 64 bits."""
RANGES: dict[PhysicalDimension, tuple[float, float]] = {
    units.NUMBER: (1e-15, 1e15),
    units.BYTES: (1.0, 1e24),
    units.SECONDS: (1e-15, 1e9),
    units.BYTES_PER_S: (1.0, 1e30),
    units.FLOP: (1.0, 1e30),
    units.FLOP_PER_S: (1.0, 1e30),
    units.JOULES: (1e-6, 1e24),
    units.WATTS: (1e-6, 1e12),
    units.USD: (1e-6, 1e12),
}
"""Smallest and largest number of each unit; zero and signs are for each field to allow or refuse."""


class NumberBounds(NamedTuple):
    """The bounds of one field that holds numbers."""

    name: str
    key: str
    least: float
    most: float
    rule: str
    several: bool
    """Whether the field is a list of numbers."""
    own_least: int | None = None
    """The least that the field itself allows."""


def check_bounds(value: Any) -> None:
    """Raise a `SpecError` that names the field of a dataclass that is out of bounds, or is no number."""
    cls: type = type(value)
    for name, key, least, most, rule, several, own_least in _field_bounds(cls):
        held = getattr(value, name)
        for number in held if several else (held,):
            if number is None:
                continue
            if not (number == 0 or least <= abs(number) <= most):  # NaN is neither
                raise SpecError(key, number, rule)
            if own_least is not None and number < own_least:
                raise SpecError(key, number, f"must be at least {own_least}" if own_least else "must not be negative")


@cache
def _field_bounds(cls: type) -> tuple[NumberBounds, ...]:
    own = {field.name: field.metadata for field in fields(cls)}
    return tuple(
        _number_bounds(slot.name, slot.key, kind, slot.dimension, own[slot.name].get("most"), several=listed)._replace(
            own_least=own[slot.name].get("least")
        )
        for slot in slots(cls).values()
        for kind, listed in _number_kinds(slot.hint)
    )


def _number_kinds(hint: Any) -> list[tuple[type, bool]]:
    """Return int or float if that is what a field of type *hint* holds, and whether it holds a list of them."""
    if hint in (int, float):
        return [(hint, False)]
    listed = typing.get_origin(hint) is tuple
    return [(get_argument, listed) for get_argument in typing.get_args(hint) if get_argument in (int, float)]


def _number_bounds(
    name: str, key: str, kind: type, dimension: PhysicalDimension | None, most: float | None, *, several: bool
) -> NumberBounds:
    if kind is int:
        highest = MOST_WHOLE if most is None else most
        return NumberBounds(name, key, 0, highest, f"must be at most {highest:,}", several)
    unit = dimension or units.NUMBER
    low, high = RANGES[unit]
    high = high if most is None else most
    shown = [f"{bound:g}" if unit == units.NUMBER else units.format_quantity(bound, unit) for bound in (low, high)]
    return NumberBounds(name, key, low, high, f"must be from {shown[0]} to {shown[1]}", several)
