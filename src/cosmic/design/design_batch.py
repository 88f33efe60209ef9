"""Many design points at once: one base, and an array for each field in which they differ.

A batch has few distinct combinations of topology, algorithm, size, members and step. `Combinations` evaluates a
function once for each of them and looks it up for every design. Such a function may be any Python, a plugin's too: it
is called with plain names and numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, TypeGuard, TypeVar, cast

import numpy as np
import numpy.typing as npt

from cosmic.base.numeric import Numeric, recorder
from cosmic.design import schema
from cosmic.design.design_point import DesignPoint

# ---- Many design points at once: one base, and an array for each field in which they differ

T = TypeVar("T")

CODE_ROOM = 2**63
"""Codes that whole numbers of 64 bits have room for."""


class Names:
    """A column of names, stored as a code for each row.

    >>> column = Names(("ring", "switch"), np.array([0, 1, 0]))
    >>> (column == "ring").tolist(), column[1], len(column)
    ([True, False, True], 'switch', 3)
    """

    __hash__ = None  # type: ignore[assignment]  # a column is no key

    def __init__(self, names: Sequence[str], codes: npt.NDArray[np.intp]) -> None:
        self.names = tuple(names)
        self.codes = codes

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> Any:
        chosen = self.codes[rows]
        return Names(self.names, chosen) if isinstance(chosen, np.ndarray) else self.names[chosen]

    def __eq__(self, name: object) -> Any:
        # Two names of a column may be equal where designs were joined: any of their codes matches.
        codes = [index for index, label in enumerate(self.names) if label == name]
        return np.isin(self.codes, codes) if len(codes) > 1 else self.codes == (codes[0] if codes else -1)

    def __ne__(self, name: object) -> Any:
        return ~(self == name)

    def tolist(self) -> list[str]:
        """Return the name of each row."""
        return [self.names[code] for code in self.codes]


Column = npt.NDArray[Any] | Names
Label = str | Names
"""A name, or a column of names over a batch."""


@dataclass(frozen=True, eq=False)
class Batch:
    """Design points as a struct of arrays. A single point is a batch without columns."""

    base: DesignPoint
    columns: Mapping[str, Column]
    known: dict[Any, Any] = field(default_factory=dict, repr=False)
    """Cache: sizes, plan, profiles, and other values that several functions need."""

    def __getitem__(self, path: str) -> Any:
        """Return the field at *path*: an array where the points differ, else the base's value."""
        if path in self.columns:
            return self.columns[path]
        fields = self.base.fields
        return fields[path] if path in fields else schema.get_field(self.base, path)

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return what *compute* gives, computed the first time that *key* is asked for."""
        if key not in self.known:
            self.known[key] = compute()
        value: T = self.known[key]
        return value

    @property
    def size(self) -> int:
        """Number of points."""
        return len(next(iter(self.columns.values()))) if self.columns else 1

    @property
    def npus(self) -> Any:
        """Number of accelerators of each point."""
        return prod(self[f"network.dims.{index}.npus"] for index in range(len(self.base.network.dims)))

    def take(self, rows: npt.NDArray[np.intp], constant: Mapping[str, Any]) -> Batch:
        """Return the points at *rows*; the fields in *constant* have one value in all of them."""
        base = self.base.changed(constant) if constant else self.base
        return Batch(base, {path: column[rows] for path, column in self.columns.items() if path not in constant})

    def groups(self, paths: Sequence[str]) -> Iterator[tuple[npt.NDArray[np.intp], Batch]]:
        """Yield groups of points that agree in the fields at *paths*, each with its rows in the batch.

        Fields that arrays cannot compute with (a schedule's name) are so made constant; the others stay arrays.
        """
        varying = [path for path in paths if path in self.columns]
        if not varying:
            yield np.arange(self.size), self
            return
        codes = combine_codes((number_values(self.columns[path]) for path in varying), self.size)
        for code in np.unique(codes):
            rows = np.flatnonzero(codes == code)
            first = int(rows[0])
            yield rows, self.take(rows, {path: _to_python_scalar(self.columns[path][first]) for path in varying})


def column_of(values: Iterable[Any]) -> Column:
    """Return *values* as a column: names as numbers with what they stand for; lists and gaps stay Python objects."""
    items = list(values)
    if items and all(isinstance(item, str) for item in items):
        names = list(dict.fromkeys(items))
        return Names(names, np.array([names.index(item) for item in items], dtype=np.intp))
    if any(isinstance(item, tuple) or item is None for item in items):
        boxed = np.empty(len(items), dtype=object)
        boxed[:] = items
        return boxed
    return np.array(items)


def number_values(column: Column) -> tuple[int, npt.NDArray[np.intp]]:
    """Return an upper bound on the distinct values of a column, and a code for each row."""
    if isinstance(column, Names):
        return len(column.names), column.codes
    sortable = np.array([str(value) for value in column]) if column.dtype == object else column  # lists of any length
    distinct, inverse = np.unique(sortable, return_inverse=True)
    return len(distinct), inverse.reshape(-1)


def combine_codes(parts: Iterable[tuple[int, npt.NDArray[Any]]], length: int) -> npt.NDArray[np.int64]:
    """Combine several codes per row into one; two rows get the same code only if all their codes agree.

    Each part is the number of codes it has room for, and the code of each row. Where all of them together have more
    combinations than fit into 64 bits, those that occur are numbered first.

    >>> combine_codes([(2**40, np.array([5, 5, 7])), (2**40, np.array([3, 4, 3]))], 3).tolist()
    [3, 4, 1099511627779]
    """
    codes, room = np.zeros(length, dtype=np.int64), 1
    for count, numbers in parts:
        # Codes multiply; before they overflow 64 bits they are renumbered by the combinations that occur.
        if room * count >= CODE_ROOM:
            distinct, codes = np.unique(codes, return_inverse=True)
            codes, room = codes.reshape(-1), len(distinct)
        codes = codes * count + numbers
        room *= count
    return codes


def has_gaps(column: Any) -> bool:
    """Return whether a column can hold None beside numbers: some designs state a figure, others do not."""
    return isinstance(column, np.ndarray) and column.dtype == object


def none_to_nan(value: Any) -> Any:
    """Return a figure, or a column of them, with NaN for None.

    >>> none_to_nan(np.array([1.0, None], dtype=object)).tolist(), none_to_nan(2.0)
    ([1.0, nan], 2.0)
    """
    if has_gaps(value):
        return value.astype(float)  # None becomes a NaN
    return np.nan if value is None else value


def batch_of(point: DesignPoint) -> Batch:
    """Return *point* as a batch of one."""
    return Batch(point, {})


def batch_of_changes(point: DesignPoint, changes: Sequence[Mapping[str, Any]]) -> Batch:
    """Return *point* with each of some *changes*, contents by path, as one batch."""
    paths = dict.fromkeys(path for change in changes for path in change)
    columns = {path: column_of(change.get(path, schema.get_field(point, path)) for change in changes) for path in paths}
    return Batch(point, columns)


def _to_python_scalar(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def first_known(*values: Any) -> Any:
    """Return the first value that is not None, or an array of each design's first.

    >>> first_known(None, 2.0, 3.0)
    2.0
    >>> first_known(np.array([None, 1.0], dtype=object), 2.0).tolist()
    [2.0, 1.0]
    """
    best: Any = None
    for value in reversed(values):
        if has_gaps(value):
            numbers = none_to_nan(value)
            best = numbers if best is None else np.where(np.isnan(numbers), best, numbers)
        elif value is not None:
            best = value
    return best


# ---- Functions of few distinct combinations: worked out once for each combination, and looked up for every design

CODE_LIMIT = 2**19
"""Whole numbers from 0 to below it are part of a design's code as they are."""


class Combinations:
    """The distinct rows of some columns, and which of them each design has.

    >>> sizes = Combinations(Names(("ring", "switch"), np.array([0, 1, 0])), 4)
    >>> [each.tolist() for each in sizes.look_up(lambda name, size: (len(name), size))]
    [[4, 6, 4], [4.0, 4.0, 4.0]]
    """

    def __init__(self, *columns: Label | Numeric) -> None:
        self.columns = columns

    @cached_property
    def distinct(self) -> tuple[list[tuple[Any, ...]], npt.NDArray[np.intp] | None]:
        """The distinct combinations; and which one each design has, None if there is one for all."""
        length = max((len(column) for column in self.columns if _is_column(column)), default=0)
        if not length:
            return [
                tuple(value if isinstance(value, str) else float(cast(float, value)) for value in self.columns)
            ], None
        _, first, which = np.unique(_row_codes(self.columns, length), return_index=True, return_inverse=True)
        rows = zip(*(_row_values(column, first) for column in self.columns), strict=True)
        return list(rows), which.reshape(-1)

    def look_up(self, function: Callable[..., tuple[float, float]], *leading: str) -> tuple[Any, Any]:
        """Return each design's own of the two numbers that *function* gives for its combination.

        Its first arguments are *leading*; then come the names and numbers of the combination.
        """
        tape = recorder(*(column.codes if isinstance(column, Names) else column for column in self.columns))
        if tape is not None:
            recorded: tuple[Any, Any] = tape.look_up(function, leading, self.columns)
            return recorded
        rows, which = self.distinct
        values = [function(*leading, *row) for row in rows]
        if which is None:
            return values[0]
        first, second = (np.array(column)[which] for column in zip(*values, strict=True))
        return first, second


def _row_codes(columns: Sequence[Label | Numeric], length: int) -> npt.NDArray[np.int64]:
    """Return a code for each design; two designs have the same only if they agree in all *columns*.

    Whole numbers, as sizes nearly always are, become part of the code as they are; other values are numbered first.
    """
    return combine_codes(filter(None, map(_column_codes, columns)), length)


def _column_codes(column: Label | Numeric) -> tuple[int, npt.NDArray[Any]] | None:
    """Return how many codes a column has room for, and the code of each design; None for a name that all share."""
    if not isinstance(column, Names | str):
        values = np.asarray(column)
        if np.all((values >= 0) & (values < CODE_LIMIT) & (values == np.floor(values))):
            return CODE_LIMIT, values.astype(np.int64)
    return number_values(column) if _is_column(column) else None


def _is_column(column: Label | Numeric) -> TypeGuard[Column]:
    """Return whether *column* has a value for each design, not one for all."""
    return isinstance(column, Names) or (isinstance(column, np.ndarray) and column.ndim > 0)


def _row_values(column: Label | Numeric, rows: npt.NDArray[np.intp]) -> list[Any]:
    """Return the values of the designs at *rows*."""
    if isinstance(column, Names) or (isinstance(column, np.ndarray) and column.ndim > 0):
        values: list[Any] = column[rows].tolist()
        return values
    return [column if isinstance(column, str) else float(column)] * len(rows)  # an array of no dimension is no key
