"""Values of derived fields: what an expression gives, as its field holds it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import Any, Protocol, get_args

import numpy as np
import numpy.typing as npt

from cosmic.design import schema
from cosmic.design.batch import Column, column_of
from cosmic.design.point import DesignPoint
from cosmic.errors import SpecError
from cosmic.psa.diagram import Flags, Indices
from cosmic.psa.expressions import Scalar

MOST_KNOWN = 1_000_000
"""How many derived values of a field are cached at most."""
TABLED = 100_000
"""Up to this many combinations of the values that a field depends on, a table says where the derived value is."""


def as_field(base: DesignPoint, path: str, value: Scalar, text: str) -> Any:
    """Return the *value* of the expression *text* as the field at *path* holds it; refuse what it cannot hold."""
    where, slot = f"derived.{path}", schema.slot_at(base, path)
    held = _as_number(value, slot.hint, where, text) if isinstance(value, Fraction) else value
    if isinstance(held, str) and (choices := slot.choices()) is not None and held not in choices:
        raise SpecError(where, held, f"must be one of {', '.join(sorted(choices))} ({text})")
    try:
        schema.assign(base, {path: held})
    except SpecError as error:
        if error.where == path:  # what else the base breaks then, other values of the same point may mend
            raise SpecError(where, held, f"{error.rule} ({text})") from None
    return held


def _as_number(value: Fraction, hint: Any, where: str, text: str) -> int | float:
    whole = int in (hint, *get_args(hint))
    if whole and value.denominator != 1:
        raise SpecError(where, _as_float(value, where, text), f"must be a whole number ({text})")
    if whole and abs(value) >= schema.INT_LIMIT:
        raise SpecError(where, text, "is too large")
    return int(value) if whole else _as_float(value, where, text)


def _as_float(value: Fraction, where: str, text: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise SpecError(where, text, "is too large") from None


class Source(Protocol):
    """What derived values are computed from: a parameter set."""

    def derived_value(self, path: str, choices: Iterable[tuple[int, int]]) -> Any:
        """Return the field at *path* of points with these choices, of columns and the indices of their values."""
        ...

    def contains(self, rows: Indices) -> Flags:
        """Return for each row whether it is a valid point."""
        ...


class DerivedValues:
    """The values of one derived field: each combination of what it depends on is computed once."""

    def __init__(self, path: str, used: list[int], sizes: Sequence[int]) -> None:
        self.path = path
        self.used = used
        """The columns of the parameters that it depends on."""
        self.sizes = tuple(sizes[place] for place in used)
        self._known: dict[tuple[int, ...], Any] = {}
        self._places: dict[Any, int] = {}
        """Every value that is in the table, in the order of the table's column."""
        self._values: Column = column_of([])
        tabled = prod(self.sizes) <= TABLED
        self._table = np.full(prod(self.sizes), -1, dtype=np.intp) if tabled else None

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take the state of another process; what came through shared memory cannot be written, and is copied."""
        self.__dict__ |= state
        self._table = None if self._table is None else np.array(self._table)

    def column(self, rows: Indices, source: Source) -> Column:
        """Return the field of many points; None stands for one that is not valid and has none."""
        chosen = rows[:, self.used]
        if self._table is None:
            return self._computed(chosen, rows, source)
        codes = chosen @ place_values(self.sizes)
        places = self._table[codes]
        if len(places) and places.min() < 0:
            found = self._computed(chosen, rows, source)
            self._learn(self._table, codes, found.tolist())
            return found
        values: Column = self._values[places]
        return values

    def _learn(self, table: Indices, codes: npt.NDArray[np.int64], values: list[Any]) -> None:
        """Note the *values* in the table; a point that has none is computed again, and refused where it is valid."""
        for code, value in set(zip(codes.tolist(), values, strict=True)):
            if value is not None:
                table[code] = self._places.setdefault(value, len(self._places))
        self._values = column_of(self._places)

    def _computed(self, chosen: Indices, rows: Indices, source: Source) -> Column:
        first, which = _distinct(chosen, self.sizes)
        if len(self._known) > MOST_KNOWN:
            self._known.clear()
        values = []
        for place, choice in enumerate(map(tuple, chosen[first].tolist())):
            if choice not in self._known:
                try:
                    self._known[choice] = source.derived_value(self.path, zip(self.used, choice, strict=True))
                except SpecError:
                    if source.contains(rows[which == place]).any():
                        raise
            values.append(self._known.get(choice))
        derived: Column = column_of(values)[which]
        return derived


def _distinct(rows: Indices, sizes: tuple[int, ...]) -> tuple[list[int], Indices]:
    """Return the first place of each distinct row, and for every row which of those it equals."""
    if prod(sizes) < 2**62:  # sorting numbers is far quicker than sorting rows
        codes = rows @ place_values(sizes)
        _, first, which = np.unique(codes, return_index=True, return_inverse=True)
    else:
        _, first, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first.tolist(), which.reshape(-1)


@lru_cache(maxsize=256)
def place_values(sizes: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Return the place value of each parameter in a mixed-radix number that encodes a combination.

    >>> place_values((10, 2, 5)).tolist()
    [10, 5, 1]
    """
    return np.array([prod(sizes[place + 1 :]) for place in range(len(sizes))], dtype=np.int64)
