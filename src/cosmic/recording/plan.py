"""A program made ready to run: what is the same in all designs is worked out once, the rest is laid out for C.

A plan belongs to one program, to the fields that differ among designs, and to the values of those that do not. Its
arrays are what `native/program.c` reads: instructions with the registers of their operands and results.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from cosmic.native import library
from cosmic.recording.operations import NAMES
from cosmic.recording.program import Program
from cosmic.recording.replay import replay
from cosmic.recording.tables import MOST_KEYS, Table, table_of
from cosmic.recording.tape import GATHER, INDEX, reads

Floats = npt.NDArray[np.float64]
WIDTH = 5
MISSING_AT_ONCE = 4096
"""Unknown combinations that one run can note; more are found by the next."""
MOST_RUNS = 1000
LISTED = (INDEX, NAMES.index("settled_seconds"), NAMES.index("interleaved_bytes"))
"""Instructions with a list of operands."""


class _Table(ctypes.Structure):
    _fields_ = (
        ("keys", ctypes.c_int64),
        ("mask", ctypes.c_int64),
        ("room", ctypes.c_int64),
        ("rows", ctypes.c_void_p),
        ("slots", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
    )


class _Program(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_void_p)
        for name in (
            "scalars",
            "registers",
            "single",
            "vector",
            "single_lists",
            "vector_lists",
            "tables",
            "input_nodes",
            "input_registers",
            "input_columns",
            "outputs",
            "vector_outputs",
            "guards",
            "vector_guards",
            "least",
            "most",
        )
    ) + tuple((name, ctypes.c_int64) for name in ("instructions", "inputs", "measured", "results", "guarded"))


class _Missing(ctypes.Structure):
    _fields_ = (("keys", ctypes.c_void_p), ("room", ctypes.c_int64), ("count", ctypes.c_int64))


@cache
def interpreter() -> tuple[Callable[..., int], int] | None:
    """Return the compiled interpreter, and how many designs it runs at a time; None where there is none."""
    found = library()
    if found is None:
        return None
    found.cosmic_operations.restype = ctypes.c_char_p
    if found.cosmic_operations().decode().split() != list(NAMES):
        return None
    lanes = found.cosmic_lanes
    lanes.restype = ctypes.c_int64
    pointer, number = ctypes.c_void_p, ctypes.c_int64
    # It keeps Python's lock: a plan's arrays are for one run at a time.
    prototype = ctypes.PYFUNCTYPE(ctypes.c_int32, pointer, pointer, number, pointer, number, pointer, number, pointer)
    return prototype(("cosmic_run", found)), int(lanes())


class Plan:
    """A program for designs that differ in the fields at *paths*, and have *uniform* values in the others."""

    def __init__(self, program: Program, paths: Sequence[str], uniform: Mapping[str, float]) -> None:
        self.program = program
        self.columns = {path: place for place, path in enumerate(paths) if path in program.inputs}
        """The inputs that differ, and the number of the column of each."""
        self.uniform = {path: float(uniform[path]) for path in program.inputs if path not in self.columns}
        found = interpreter()
        self._compiled = None if found is None else _Compiled(program, self.columns, self.uniform, *found)

    def run(self, columns: Floats, rows: npt.NDArray[np.int64], results: Floats) -> bool:
        """Run the designs at some *rows* of *columns*, and write the *results* there; return whether guards hold.

        Columns are those of the *paths*, results those of the program, each a row of its matrix.
        """
        if self._compiled is not None:
            return self._compiled.run(columns, rows, results)
        found = np.empty((len(self.program.results), len(rows)))
        chosen = columns[np.ix_(list(self.columns.values()), rows)]
        kept = replay(self.program, self.uniform, chosen, tuple(self.columns), found)
        results[:, rows] = found
        return kept


class _Compiled:
    """A plan laid out for the C interpreter."""

    def __init__(
        self,
        program: Program,
        columns: Mapping[str, int],
        uniform: Mapping[str, float],
        run: Callable[..., int],
        lanes: int,
    ) -> None:
        self._run, self._lanes, self._program = run, lanes, program
        self._kept: list[Any] = []
        """Arrays that C reads: they must not be collected."""
        self._tables = [table_of(known) for known in program.tables]
        self._columns = [table_of(each.known).column(each) for each in program.lookups]
        self._table_numbers = {known: number for number, known in enumerate(program.tables)}
        self._views = [_Table() for _ in self._tables]
        self._versions = [-1] * len(self._tables)
        self._pointers = (ctypes.c_void_p * max(1, len(self._views)))(*(ctypes.addressof(each) for each in self._views))
        self._notes = np.zeros((MISSING_AT_ONCE, MOST_KEYS + 1))
        self._missing = _Missing(self._notes.ctypes.data, MISSING_AT_ONCE, 0)
        self._scalars = np.ones(len(program.nodes) + 1)  # the last is 1, whatever happens
        for place, value in program.constants.items():
            self._scalars[place] = value
        varies = program.varying(columns)
        nodes = [place for place, node in enumerate(program.nodes) if node[0] >= 0]
        first = {path: place for place, path in enumerate(uniform)}
        self._prologue = self._struct([place for place in nodes if not varies[place]], first, (), alone=True)
        self._body = self._struct([place for place in nodes if varies[place]], columns, varies, alone=False)
        values = np.array([[uniform[path]] for path in uniform]).reshape(len(uniform), 1)
        alone = np.zeros((1, 1))
        self._call(self._prologue, values, np.zeros(1, dtype=np.int64), alone)
        self._troubled = bool(np.isnan(alone[0, 0]))

    def run(self, columns: Floats, rows: npt.NDArray[np.int64], results: Floats) -> bool:
        """Run the designs at some *rows*; return whether the guards hold."""
        kept = self._call(self._body, columns, rows, results)
        if self._troubled:
            results[: self._program.measured, rows] = np.nan
        return kept

    def _call(self, struct: _Program, columns: Floats, rows: npt.NDArray[np.int64], results: Floats) -> bool:
        for _ in range(MOST_RUNS):
            self._refresh()
            self._missing.count = 0
            state = self._run(
                ctypes.addressof(struct),
                columns.ctypes.data,
                columns.shape[1],
                rows.ctypes.data,
                len(rows),
                results.ctypes.data,
                results.shape[1],
                ctypes.addressof(self._missing),
            )
            if not self._missing.count:
                return state == 0
            self._learn(min(self._missing.count, MISSING_AT_ONCE))
        raise RuntimeError("combinations that are looked up have no end")

    def _refresh(self) -> None:
        """Say where the tables lie now."""
        for place, table in enumerate(self._tables):
            if self._versions[place] != table.version:
                self._versions[place] = table.version
                view = self._views[place]
                view.keys, view.mask, view.room = table.keys, len(table.slots) - 1, table.room
                view.rows, view.slots, view.values = (
                    each.ctypes.data for each in (table.rows, table.slots, table.values)
                )

    def _learn(self, count: int) -> None:
        """Add the combinations that a run did not know; raise what went wrong with one that it did."""
        notes = self._notes[:count]
        for number in np.unique(notes[:, 0]).astype(int).tolist():
            mine = notes[notes[:, 0] == number]
            if number < 0:
                self._tables[-1 - number].explain(int(mine[0, 1]), int(mine[0, 2]))
                raise RuntimeError("a number that is looked up is not known")
            table: Table = self._tables[number]
            table.add(np.unique(mine[:, 1 : 1 + table.keys], axis=0))

    # ---------------------------------------------------------------------------------------- layout

    def _struct(self, order: Sequence[int], columns: Mapping[str, int], varies: Any, *, alone: bool) -> _Program:
        """Return the instructions at some nodes as C reads them; *alone*: one number for all designs comes out."""
        program, one = self._program, len(self._scalars) - 1
        inputs = [program.inputs[path] for path in columns]
        outputs = [one] if alone else list(program.results.values())
        guards = [] if alone else list(program.guards)
        single, single_lists = self._code(order, lambda place: place)
        struct = _Program(
            scalars=self._scalars.ctypes.data,
            single=self._keep(single),
            single_lists=self._keep(single_lists),
            tables=ctypes.addressof(self._pointers),
            input_nodes=self._keep(inputs),
            input_columns=self._keep(list(columns.values())),
            outputs=self._keep(outputs),
            guards=self._keep([guard.node for guard in guards]),
            least=self._keep([guard.least for guard in guards], np.float64),
            most=self._keep([guard.most for guard in guards], np.float64),
            instructions=len(order),
            inputs=len(inputs),
            measured=1 if alone else program.measured,
            results=len(outputs),
            guarded=len(guards),
        )
        if alone:
            return struct
        held = {*outputs, *(guard.node for guard in guards)}
        registers, count = _registers(program, order, inputs, held)
        of: Callable[[int], int] = lambda place: registers[place] if varies[place] else ~place  # noqa: E731
        vector, vector_lists = self._code(order, of)
        self._registers = np.zeros((max(1, count), self._lanes))
        struct.registers = self._registers.ctypes.data
        struct.vector, struct.vector_lists = self._keep(vector), self._keep(vector_lists)
        struct.input_registers = self._keep([registers[place] for place in inputs])
        struct.vector_outputs = self._keep([of(place) for place in outputs])
        struct.vector_guards = self._keep([of(guard.node) for guard in guards])
        return struct

    def _code(self, order: Sequence[int], of: Callable[[int], int]) -> tuple[list[tuple[int, ...]], list[int]]:
        """Return instructions and the lists of operands that some have; *of* gives the place of a node's value."""
        code: list[tuple[int, ...]] = []
        lists: list[int] = []
        for place in order:
            node = self._program.nodes[place]
            operands = [of(read) for read in reads(node)]
            if node[0] == GATHER:
                lookup = self._program.lookups[node[2]]
                operands += [self._columns[node[2]] + node[3], self._table_numbers[lookup.known]]
            elif node[0] in LISTED:
                lists += operands
                first = node[1] if node[0] == INDEX else 0
                operands = [first, len(lists) - len(operands), len(operands)]
            code.append((node[0], of(place), *operands, *(0,) * (WIDTH - 2 - len(operands))))
        return code, lists

    def _keep(self, values: Sequence[Any], dtype: Any = np.int32) -> int:
        found = np.ascontiguousarray(np.array(values, dtype=dtype))
        self._kept.append(found)
        address: int = found.ctypes.data
        return address


def _registers(
    program: Program, order: Sequence[int], inputs: Sequence[int], held: set[int]
) -> tuple[dict[int, int], int]:
    """Return a register for each node, and how many there are; one whose value is not needed any more is used again."""
    found: dict[int, int] = {}
    free: list[int] = []
    count = 0
    ends = _ends(program, order)
    for place in (*inputs, *order):
        if not free:
            free.append(count)
            count += 1
        found[place] = free.pop()
        free += [found[read] for read in ends.get(place, ()) if read in found and read not in held]
    return found, count


def _ends(program: Program, order: Sequence[int]) -> dict[int, list[int]]:
    last: dict[int, int] = {}
    for place in order:
        last |= dict.fromkeys(reads(program.nodes[place]), place)
    found: dict[int, list[int]] = {}
    for read, place in last.items():
        found.setdefault(place, []).append(read)
    return found
