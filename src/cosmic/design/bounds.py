"""Bounds on the numbers of a design: wider than anything that could be built, narrow enough to compute with.

The cost models multiply and divide these numbers. Within the bounds no product overflows, in 64-bit integers or
floats, and no quotient is infinite. A field can narrow its own: ``field(metadata={"most": 1024})``.
"""

from __future__ import annotations

import typing
from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple

from cosmic import units
from cosmic.design.schema import slots
from cosmic.errors import require
from cosmic.units import PhysicalDimension

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


class Range(NamedTuple):
    """The bounds of one field that holds numbers."""

    name: str
    key: str
    least: float
    most: float
    rule: str
    several: bool
    """Whether the field is a list of numbers."""


def check_bounds(value: Any) -> None:
    """Raise a `SpecError` that names the field of a dataclass that is out of bounds, or is no number."""
    cls: type = type(value)
    for each in _ranges(cls):
        held = getattr(value, each.name)
        for number in held if each.several else (held,):
            fits = number is None or number == 0 or each.least <= abs(number) <= each.most  # NaN does not
            require(fits, each.key, number, each.rule)


@cache
def _ranges(cls: type) -> tuple[Range, ...]:
    own = {field.name: field.metadata.get("most") for field in fields(cls)}
    return tuple(
        _range(slot.name, slot.key, kind, slot.dimension, own[slot.name], several=listed)
        for slot in slots(cls).values()
        for kind, listed in _number_kinds(slot.hint)
    )


def _number_kinds(hint: Any) -> list[tuple[type, bool]]:
    """Return int or float if that is what a field of type *hint* holds, and whether it holds a list of them."""
    if hint in (int, float):
        return [(hint, False)]
    listed = typing.get_origin(hint) is tuple
    return [(each, listed) for each in typing.get_args(hint) if each in (int, float)]


def _range(
    name: str, key: str, kind: type, dimension: PhysicalDimension | None, most: float | None, *, several: bool
) -> Range:
    if kind is int:
        highest = MOST_WHOLE if most is None else most
        return Range(name, key, 0, highest, f"must be at most {highest:,}", several)
    unit = dimension or units.NUMBER
    low, high = RANGES[unit]
    high = high if most is None else most
    shown = [f"{each:g}" if unit == units.NUMBER else units.show(each, unit) for each in (low, high)]
    return Range(name, key, low, high, f"must be from {shown[0]} to {shown[1]}", several)
