"""A recorded program, and the tables in which it looks up what few combinations decide.

The program is what is left of a tape once equal operations are one and needless ones are gone.

A lookup table holds what few combinations of names and numbers decide, and is filled as combinations are met. A
combination is a row: its numbers, with the codes of names. The functions of it that programs look up (`Lookup`) each
have two columns of numbers. Programs of one process share tables; the C interpreter reads them where they lie.

What of a design decides which operations are computed, and what is a number in them.

Designs of one structure share a program: those with the same model, the same switches, the same names, and the same
figures that are known (a price, a rate of fp8). All other numbers are inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from cosmic.design.design_batch import Column, Names
from cosmic.design.design_point import DesignPoint
from cosmic.design.model_layer import Model
from cosmic.network.dimension_wiring import is_wiring, label_of, wiring_at
from cosmic.network.transport_protocols import IDEAL
from cosmic.simulate.recording.program_tape import LISTED, Guard, KnownColumns, Lookup, Tape, nodes_read_by
from cosmic.workload.mesh_sizes import STRUCTURE, is_memory_switch

# ---- What the shape of a program depends on

STRUCTURAL = frozenset(f"workload.{name}" for name in STRUCTURE)
IGNORED = ("compute.accelerator", "compute.provenance")
"""Texts that no number follows from."""
REPEATED = "workload.virtual_stages"
"""How often some parts are computed: up to the next power of two of it."""


@dataclass(frozen=True, slots=True)
class Structure:
    """What designs must have in common to share a program."""

    model: Model
    fixed: tuple[tuple[str, Any], ...]
    """Every field that is no number, with its value."""
    numbers: tuple[str, ...]
    """The fields that are numbers, and so inputs."""
    names: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Fields whose name differs among the designs of a batch, and the names that they take."""
    repeats: int = 1
    """A power of two that no design's virtual stages exceed."""


def is_structural(path: str, column: Column) -> bool:
    """Return whether designs that differ in a column differ in their structure."""
    if path in STRUCTURAL or path.startswith("model.") or is_memory_switch(path):
        return True
    return not isinstance(column, Names) and column.dtype.kind not in "iuf"


def structure_of(base: DesignPoint, columns: Mapping[str, Column]) -> Structure:
    """Return the structure of designs whose numbers and names may differ in *columns*."""
    if not columns:
        structure: Structure = base.known.get(Structure) or base.known.setdefault(Structure, _structure_of(base, {}))
        return structure
    return _structure_of(base, columns)


def _structure_of(base: DesignPoint, columns: Mapping[str, Column]) -> Structure:
    # An ideal transport reads none of its settings: designs that differ only in these share a program.
    ideal = {
        f"network.dims.{index}.transport."
        for index, dim in enumerate(base.network.dims)
        if dim.transport == IDEAL and not any(path.startswith(f"network.dims.{index}.transport.") for path in columns)
    }
    fixed: list[tuple[str, Any]] = []
    numbers: list[str] = []
    names: list[tuple[str, tuple[str, ...]]] = []
    for path, value in base.fields.items():
        if path.startswith("model.") or path in IGNORED or f"{path.rpartition('.')[0]}." in ideal:
            continue
        if is_wiring(path, bool(base.network.faults)):
            fixed.append((path, value if not isinstance(value, tuple) else len(value)))
            continue
        column = columns.get(path)
        if isinstance(column, Names):
            names.append((path, column.names))
        elif (
            path not in STRUCTURAL
            and not is_memory_switch(path)
            and (column is not None or type(value) in (int, float))
        ):
            numbers.append(path)
        else:
            fixed.append((path, value))
    fixed += [(ideal_dim, "ideal") for ideal_dim in sorted(ideal)]
    # The dimensions whose links are looked at, with the names under which programs look up their costs
    labels = [label_of("", wiring_at(base.network, index)) for index in range(len(base.network.dims))]
    fixed += [(f"network.dims.{index} wired", label) for index, label in enumerate(labels) if label]
    virtual: Any = columns.get(REPEATED, base.workload.virtual_stages)
    repeats = 1 << int(np.max(virtual) - 1).bit_length()
    return Structure(base.model, tuple(fixed), tuple(numbers), tuple(names), repeats)


# ---- A recorded program: what is left of a tape once equal operations are one and needless ones are gone

T = TypeVar("T")
Whole = npt.NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class RecordedProgram:
    """Operations over nodes: constants, inputs and the results of earlier operations."""

    nodes: Whole
    """A row for each node: see `cosmic.simulate.recording.program_tape.Node`."""
    lists: Whole
    """Operands of the nodes that have more than three."""
    constants: Mapping[int, float]
    inputs: Mapping[str, int]
    """The node of each field of a design that is read."""
    tables: tuple[KnownColumns, ...]
    lookups: tuple[Lookup, ...]
    guards: tuple[Guard, ...]
    results: Mapping[str, int]
    """The node of each result, measured ones first."""
    measured: int
    """How many of the results are numbers of a design that runs; the others are rules that it must meet."""
    known: dict[Any, Any] = field(default_factory=dict, repr=False)
    """Cache: what follows from the instructions."""

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the value of *compute*, cached under *key*."""
        if key not in self.known:
            self.known[key] = compute()
        value: T = self.known[key]
        return value


def program_of_tape(tape: Tape, measured: Mapping[str, Any], rules: Mapping[str, Any]) -> RecordedProgram:
    """Return the program of a tape: the nodes that the metrics *measured* and the *rules* need."""
    wanted = {name: tape.place_of(value) for name, value in (*measured.items(), *rules.items())}
    # The nodes that results or guards need
    needed: set[int] = set()
    waiting = [*wanted.values(), *(guard.node for guard in tape.guards)]
    while waiting:
        node_read = waiting.pop()
        if node_read not in needed:
            needed.add(node_read)
            waiting += nodes_read_by(tape.nodes[node_read], tape.lists)
    live = sorted(needed)
    renumbered = {old: new for new, old in enumerate(live)}
    nodes: list[tuple[int, ...]] = []
    lists: list[int] = []
    for old in live:
        node = tape.nodes[old]
        read = [renumbered[operand] for operand in nodes_read_by(node, tape.lists)]
        if node[0] in LISTED:
            nodes.append((node[0], node[1], len(lists), node[3]))
            lists += read
        else:
            nodes.append((node[0], *read, *node[1 + len(read) :]))
    return RecordedProgram(
        nodes=np.array(nodes, dtype=np.int32).reshape(-1, 4),
        lists=np.array(lists, dtype=np.int32),
        constants={renumbered[old]: value for old, value in tape.constants.items() if old in renumbered},
        inputs={path: renumbered[old] for old, path in tape.inputs.items() if old in renumbered},
        tables=tuple(tape.tables),
        lookups=tuple(tape.lookups),
        guards=tuple(guard._replace(node=renumbered[guard.node]) for guard in tape.guards),
        results={name: renumbered[old] for name, old in wanted.items()},
        measured=len(measured),
    )


# ---- Tables of what few combinations of names and numbers decide, filled as combinations are met

MOST_KEYS = 12
"""Columns of a combination, at most (native/program.c)."""
FIRST_ROWS = 256
MOST_ROWS = 2**20
"""Rows after which a table starts anew: numbers that are no sizes have no end."""


class LookupTable:
    """The combinations of some columns that were met so far."""

    def __init__(self, known: KnownColumns) -> None:
        self.known = known
        self.keys = sum(not isinstance(column, str) for column in known)
        self.lookups: dict[Lookup, int] = {}
        self.places: dict[tuple[float, ...], int] = {}
        self.version = 0
        """Raised when the arrays move."""
        self._failed: dict[tuple[int, int], Exception] = {}
        self._make(FIRST_ROWS)

    def _make(self, room: int) -> None:
        self.room = room
        self.rows = np.zeros((room, max(1, self.keys)))
        self.slots = np.full((4 * room, 2), -1, dtype=np.int64)
        self.values = np.full((2 * max(1, len(self.lookups)), room), np.nan)
        self.version += 1

    def column(self, lookup: Lookup) -> int:
        """Return where the first number of a function is kept."""
        index = self.lookups.get(lookup)
        if index is None:
            index = self.lookups[lookup] = len(self.lookups)
            values = self.values
            self.values = np.full((2 * len(self.lookups), self.room), np.nan)
            self.values[: 2 * index] = values[: 2 * index]
            self.version += 1
            for row, key in enumerate(self.places):
                self._fill(row, key, lookup)
        return 2 * index

    def add(self, keys: npt.NDArray[np.float64]) -> None:
        """Add combinations, and work out what they decide."""
        for values in keys.tolist():
            key = tuple(value + 0.0 for value in values)
            if key in self.places:
                continue
            if len(self.places) >= MOST_ROWS:
                self.places.clear()
                self._failed.clear()
                self._make(FIRST_ROWS)
            if len(self.places) == self.room:
                self._grow()
            row = self.places[key] = len(self.places)
            self.rows[row, : self.keys] = key
            self._place(row, key)
            for lookup in self.lookups:
                self._fill(row, key, lookup)

    def _grow(self) -> None:
        rows, values = self.rows, self.values
        self._make(2 * self.room)
        self.rows[: len(rows)], self.values[:, : values.shape[1]] = rows, values
        for key, row in self.places.items():
            self._place(row, key)

    def _place(self, row: int, key: tuple[float, ...]) -> None:
        hashed, mask = hash_key(key), len(self.slots) - 1
        slot = hashed & mask
        while self.slots[slot, 1] >= 0:
            slot = (slot + 1) & mask
        self.slots[slot] = hashed - (hashed >> 63 << 64), row  # as a signed number

    def _fill(self, row: int, key: tuple[float, ...], lookup: Lookup) -> None:
        column = 2 * self.lookups[lookup]
        try:
            self.values[column : column + 2, row] = lookup.function(*lookup.leading, *self.arguments(key))
        except Exception as error:
            self._failed[row, column] = error

    def arguments(self, key: Sequence[float]) -> list[Any]:
        """Return the names and numbers of a combination."""
        values = iter(key)
        return [
            column
            if isinstance(column, str)
            else column[int(next(values))]
            if isinstance(column, tuple)
            else next(values)
            for column in self.known
        ]

    def places_of(self, keys: npt.NDArray[np.float64]) -> npt.NDArray[np.intp]:
        """Return the rows of combinations, new ones too."""
        distinct, key_of = np.unique(keys + 0.0, axis=0, return_inverse=True)
        self.add(distinct)
        rows = np.array([self.places[tuple(key)] for key in distinct.tolist()], dtype=np.intp)
        return rows[key_of.reshape(-1)]

    def value(self, column: int, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.float64]:
        """Return one number for each of some rows."""
        values: npt.NDArray[np.float64] = self.values[column, rows]
        for row in np.unique(rows[np.isnan(values)]).tolist():
            self.explain(row, column)
        return values

    def explain(self, row: int, column: int) -> None:
        """Raise what went wrong when a number was worked out."""
        if error := self._failed.get((row, column - column % 2)):
            raise error


_TABLES: dict[KnownColumns, LookupTable] = {}


def table_of(known: KnownColumns) -> LookupTable:
    """Return the table of combinations with such names."""
    if known not in _TABLES:
        _TABLES[known] = LookupTable(known)
    return _TABLES[known]


def forget_tables() -> None:
    """Begin all tables anew."""
    _TABLES.clear()


MASK = 2**64 - 1


def hash_key(key: Sequence[float]) -> int:
    """Return the hash of a combination, as native/program.c computes it."""
    hashed = 0x9E3779B97F4A7C15
    for bits in np.array(key, dtype=np.float64).view(np.uint64).tolist():
        hashed = ((hashed ^ (bits ^ (bits >> 29))) * 0xFF51AFD7ED558CCD) & MASK
        hashed ^= hashed >> 32
    return hashed
